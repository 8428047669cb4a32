/// Several `user.*` attributes of one object in one stored attribute (FileFormat, Extended attributes).
///
/// Plaintext: 0x00, then the attributes in ascending order of N. Each is the size of N (1 byte) ‖ N ‖ the size of the
/// value (2 bytes) ‖ the value. N is the name without `user.`.
package struct AttributePack: Sendable, Equatable {
    /// The largest value of a stored attribute: the kernel's XATTR_SIZE_MAX.
    package static let maximumStoredSize = 64 << 10
    private static let version: UInt8 = 0

    /// The values by name without `user.`.
    private var values: [[UInt8]: [UInt8]] = [:]

    package init() {}

    package var isEmpty: Bool { values.isEmpty }

    /// Full plaintext names, `user.…`, in ascending order.
    package var names: [[UInt8]] { sortedNames.map { AttributeCodec.userPrefix + $0 } }

    private var sortedNames: [[UInt8]] { values.keys.sorted { $0.lexicographicallyPrecedes($1) } }

    /// The value under a full plaintext name, or nil. A new value replaces an old one. The caller must not set a name
    /// outside the format's bounds.
    package subscript(name: [UInt8]) -> [UInt8]? {
        get { values[Array(name.dropFirst(AttributeCodec.userPrefix.count))] }
        set { values[Array(name.dropFirst(AttributeCodec.userPrefix.count))] = newValue }
    }

    /// Returns the plaintext, or nil if it does not fit a stored attribute.
    func serialized(overhead: Int) -> [UInt8]? {
        let size = values.reduce(1) { $0 + 3 + $1.key.count + $1.value.count }
        guard size + overhead <= Self.maximumStoredSize else { return nil }
        var bytes = [Self.version]
        bytes.reserveCapacity(size)
        for name in sortedNames {
            let value = values[name] ?? []
            bytes.append(UInt8(name.count))
            bytes += name
            bytes += [UInt8(truncatingIfNeeded: value.count), UInt8(value.count >> 8)]
            bytes += value
        }
        return bytes
    }

    /// Parses a plaintext. Throws `malformed` unless its layout is exactly that of the format.
    init(parsing bytes: [UInt8]) throws(FormatError) {
        guard bytes.first == Self.version else { throw Self.malformed }
        var rest = bytes.dropFirst()
        var last: ArraySlice<UInt8>?
        while let size = rest.popFirst() {
            guard let name = Self.removePrefix(Int(size), from: &rest), let sizes = Self.removePrefix(2, from: &rest),
                let low = sizes.first, let high = sizes.last,
                let value = Self.removePrefix(Int(high) << 8 | Int(low), from: &rest)
            else { throw Self.malformed }
            // Refuse a name that a writer could not have set, or would have put elsewhere in the order.
            guard AttributeCodec.isStorable(inner: name),
                last.map({ $0.lexicographicallyPrecedes(name) }) ?? true
            else { throw Self.malformed }
            values[Array(name)] = Array(value)
            last = name
        }
    }

    private static func removePrefix(_ count: Int, from bytes: inout ArraySlice<UInt8>) -> ArraySlice<UInt8>? {
        guard bytes.count >= count else { return nil }
        defer { bytes.removeFirst(count) }
        return bytes.prefix(count)
    }

    private static var malformed: FormatError {
        FormatError(.malformed, "pack of attributes: not laid out as the format says")
    }
}
