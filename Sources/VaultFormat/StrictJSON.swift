internal import LinuxSystem

/// A value in the strict JSON of `vaultfs.json` and `view.json`. Strings are UTF-8 bytes: `String` would compare by canonical
/// equivalence, under which two different keys can be equal.
package enum StrictJSON: Equatable {
    case object([[UInt8]: StrictJSON])
    case array([StrictJSON])
    case string([UInt8])
    case integer(UInt64)
    case boolean(Bool)
    case null
}

/// The members of one object, taken one by one; whatever is left over is unknown and refused.
package struct JSONMembers {
    /// Where the object stands, for messages: "vaultfs.json" or "vaultfs.json: slot 2".
    package let place: String
    private var members: [[UInt8]: StrictJSON]

    package init(_ value: StrictJSON, place: String) throws(FormatError) {
        guard case .object(let members) = value else { throw FormatError(.malformed, "\(place): not an object") }
        self.place = place
        self.members = members
    }

    /// The value of `key`, without taking it; nil where there is none.
    package func peek(_ key: String) -> StrictJSON? { members[Array(key.utf8)] }

    /// The value of `key`, which must be there.
    package mutating func take(_ key: String) throws(FormatError) -> StrictJSON {
        guard let value = members.removeValue(forKey: Array(key.utf8)) else {
            throw FormatError(.malformed, "\(place): no \(key)")
        }
        return value
    }

    package mutating func takeString(_ key: String) throws(FormatError) -> [UInt8] {
        guard case .string(let bytes) = try take(key) else {
            throw FormatError(.malformed, "\(place): \(key) is not a string")
        }
        return bytes
    }

    package mutating func takeInteger(_ key: String) throws(FormatError) -> UInt64 {
        guard case .integer(let value) = try take(key) else {
            throw FormatError(.malformed, "\(place): \(key) is not an integer")
        }
        return value
    }

    /// An integer inside `range`.
    package mutating func takeInteger(_ key: String, in range: ClosedRange<Int>) throws(FormatError) -> Int {
        let value = try takeInteger(key)
        guard let value = Int(exactly: value), range.contains(value) else {
            throw FormatError(
                .malformed, "\(place): \(key) \(value) is not in \(range.lowerBound)…\(range.upperBound)")
        }
        return value
    }

    mutating func takeArray(_ key: String) throws(FormatError) -> [StrictJSON] {
        guard case .array(let values) = try take(key) else {
            throw FormatError(.malformed, "\(place): \(key) is not an array")
        }
        return values
    }

    /// Exactly `count` bytes in canonical base64url.
    mutating func takeBytes(_ key: String, count: Int) throws(FormatError) -> [UInt8] {
        guard let bytes = Base64.url.decode(try takeString(key)), bytes.count == count else {
            throw FormatError(.malformed, "\(place): \(key) is not \(count) bytes in base64url")
        }
        return bytes
    }

    /// A valid time, as text.
    mutating func takeTime(_ key: String) throws(FormatError) -> String {
        let text = try takeString(key)
        guard Timestamp.isValid(text) else {
            throw FormatError(.malformed, "\(place): \(key) '\(shown(text))' is not a time YYYY-MM-DDThh:mm:ssZ")
        }
        return String(decoding: text, as: UTF8.self)
    }

    /// A valid time, as text, or nil for `null`.
    mutating func takeOptionalTime(_ key: String) throws(FormatError) -> String? {
        guard peek(key) == .null else { return try takeTime(key) }
        _ = try take(key)
        return nil
    }

    /// Throws if a member has not been taken.
    package func refuseRest() throws(FormatError) {
        guard let key = members.keys.min(by: { $0.lexicographicallyPrecedes($1) }) else { return }
        throw FormatError(.malformed, "\(place): unknown key '\(shown(key))'")
    }
}
