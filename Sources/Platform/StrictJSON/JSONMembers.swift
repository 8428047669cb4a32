internal import LinuxSystem

/// The members of one object, removed one by one. `refuseRest` refuses the others.
package struct JSONMembers<Failure: JSONFailure> {
    /// The start of error messages: "vaultfs.json" or "vaultfs.json: slot at 2".
    package let context: String
    private var members: [[UInt8]: StrictJSON]

    /// Parses the members of an object from `bytes`, which must be strict JSON.
    ///
    /// Refuses everything that other readers accept or read differently: duplicate keys, `1.0` and `1e0` for an
    /// integer, a byte order mark. A MAC does not protect bytes if two readers understand them differently.
    /// - Parameters:
    ///   - context: the start of error messages, such as "vaultfs.json".
    ///   - maximumSize: the size limit in bytes.
    /// - Throws: `Failure(malformed:)`, which names the context and the position.
    package init(parsing bytes: [UInt8], context: String, maximumSize: Int) throws(Failure) {
        let value = try JSONParser<Failure>.parse(bytes, context: context, maximumSize: maximumSize)
        try self.init(value, context: context)
    }

    /// - Throws: `Failure(malformed:)` if the value is not an object.
    package init(_ value: StrictJSON, context: String) throws(Failure) {
        guard case .object(let members) = value else { throw Failure(malformed: "\(context): not an object") }
        self.context = context
        self.members = members
    }

    /// Returns the error for a defect of these members.
    package func error(_ text: String) -> Failure { Failure(malformed: "\(context): \(text)") }

    /// Returns the value of `key` without removing it. Nil if it is missing.
    package func peek(_ key: String) -> StrictJSON? { members[Array(key.utf8)] }

    /// Removes and returns the value of `key`, which must exist.
    /// - Throws: `Failure(malformed:)`, which names the context and the key.
    package mutating func remove(_ key: String) throws(Failure) -> StrictJSON {
        guard let value = members.removeValue(forKey: Array(key.utf8)) else { throw error("no \(key)") }
        return value
    }

    /// - Throws: `Failure(malformed:)` if `key` is missing or not a string.
    package mutating func removeString(_ key: String) throws(Failure) -> [UInt8] {
        try remove(key, "a string") { if case .string(let bytes) = $0 { bytes } else { nil } }
    }

    /// - Throws: `Failure(malformed:)` if `key` is missing or not an integer.
    package mutating func removeInteger(_ key: String) throws(Failure) -> UInt64 {
        try remove(key, "an integer") { if case .integer(let value) = $0 { value } else { nil } }
    }

    /// - Throws: `Failure(malformed:)` if `key` is missing or not an array.
    package mutating func removeArray(_ key: String) throws(Failure) -> [StrictJSON] {
        try remove(key, "an array") { if case .array(let values) = $0 { values } else { nil } }
    }

    private mutating func remove<Value>(
        _ key: String, _ kind: String, as value: (StrictJSON) -> Value?
    ) throws(Failure) -> Value {
        guard let value = value(try remove(key)) else { throw error("\(key) is not \(kind)") }
        return value
    }

    /// Removes and returns an integer inside of `range`.
    /// - Throws: `Failure(malformed:)`, which names the context and the key.
    package mutating func removeInteger(_ key: String, in range: ClosedRange<Int>) throws(Failure) -> Int {
        let value = try removeInteger(key)
        guard let value = Int(exactly: value), range.contains(value) else {
            throw error("\(key) \(value) is not in \(range.lowerBound)…\(range.upperBound)")
        }
        return value
    }

    /// Removes and returns exactly `count` bytes from canonical base64url.
    /// - Throws: `Failure(malformed:)`, which names the context and the key.
    package mutating func removeBytes(_ key: String, count: Int) throws(Failure) -> [UInt8] {
        guard let bytes = Base64.url.decode(try removeString(key)), bytes.count == count else {
            throw error("\(key) is not \(count) bytes in base64url")
        }
        return bytes
    }

    /// Throws if a member has not been removed.
    package func refuseRest() throws(Failure) {
        guard let key = members.keys.min(by: { $0.lexicographicallyPrecedes($1) }) else { return }
        throw error("unknown key '\(shown(key))'")
    }
}
