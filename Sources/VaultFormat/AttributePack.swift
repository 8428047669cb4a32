/// Several `user.*` attributes of one object in one stored attribute (FileFormat, Extended attributes).
///
/// Plaintext: 0x00, then the attributes in ascending order of N. Each is the size of N (1 byte) ‖ N ‖ the size of the
/// value (2 bytes) ‖ the value. N is the name without `user.`.
package struct AttributePack: Sendable, Equatable {
    private struct Entry: Sendable, Equatable {
        var name: [UInt8]
        var value: [UInt8]
    }

    /// The largest value of a stored attribute: the kernel's XATTR_SIZE_MAX.
    package static let maximumStoredSize = 64 << 10
    private static let version: UInt8 = 0

    /// In ascending order of the names, each name once.
    private var entries: [Entry] = []

    package init() {}

    package var isEmpty: Bool { entries.isEmpty }

    /// Full plaintext names, `user.…`.
    package var names: [[UInt8]] { entries.map { AttributeCodec.userPrefix + $0.name } }

    /// The value under a full plaintext name, or nil. A new value replaces an old one. A name that the format cannot
    /// hold must not be set.
    package subscript(name: [UInt8]) -> [UInt8]? {
        get {
            let inner = name.dropFirst(AttributeCodec.userPrefix.count)
            let index = index(of: inner)
            return holds(inner, at: index) ? entries[index].value : nil
        }
        set {
            let inner = name.dropFirst(AttributeCodec.userPrefix.count)
            let index = index(of: inner)
            if holds(inner, at: index) { entries.remove(at: index) }
            if let newValue { entries.insert(Entry(name: Array(inner), value: newValue), at: index) }
        }
    }

    /// The index of the first entry whose name is not below `inner`.
    private func index(of inner: ArraySlice<UInt8>) -> Int {
        var range = entries.startIndex..<entries.endIndex
        while !range.isEmpty {
            let middle = range.lowerBound + range.count / 2
            range =
                entries[middle].name.lexicographicallyPrecedes(inner)
                ? middle + 1..<range.upperBound : range.lowerBound..<middle
        }
        return range.lowerBound
    }

    private func holds(_ inner: ArraySlice<UInt8>, at index: Int) -> Bool {
        index < entries.endIndex && entries[index].name.elementsEqual(inner)
    }

    /// Returns the plaintext, or nil if it does not fit a stored attribute.
    func serialized(overhead: Int) -> [UInt8]? {
        let size = entries.reduce(1) { $0 + 3 + $1.name.count + $1.value.count }
        guard size + overhead <= Self.maximumStoredSize else { return nil }
        var bytes = [Self.version]
        bytes.reserveCapacity(size)
        for entry in entries {
            bytes.append(UInt8(entry.name.count))
            bytes += entry.name
            bytes += [UInt8(truncatingIfNeeded: entry.value.count), UInt8(entry.value.count >> 8)]
            bytes += entry.value
        }
        return bytes
    }

    /// Parses a plaintext. Throws `malformed` unless its layout is exactly that of the format.
    init(parsing bytes: [UInt8]) throws(FormatError) {
        guard bytes.first == Self.version else { throw Self.malformed }
        var rest = bytes.dropFirst()
        while let size = rest.popFirst() {
            guard let name = Self.take(Int(size), from: &rest), let sizes = Self.take(2, from: &rest),
                let low = sizes.first, let high = sizes.last,
                let value = Self.take(Int(high) << 8 | Int(low), from: &rest)
            else { throw Self.malformed }
            // Refuse a name that could not have been set, or not in this order.
            guard AttributeCodec.isStorable(inner: name),
                entries.last.map({ $0.name.lexicographicallyPrecedes(name) }) ?? true
            else { throw Self.malformed }
            entries.append(Entry(name: Array(name), value: Array(value)))
        }
    }

    private static func take(_ count: Int, from bytes: inout ArraySlice<UInt8>) -> ArraySlice<UInt8>? {
        guard bytes.count >= count else { return nil }
        defer { bytes.removeFirst(count) }
        return bytes.prefix(count)
    }

    private static var malformed: FormatError {
        FormatError(.malformed, "pack of attributes: not laid out as the format says")
    }
}
