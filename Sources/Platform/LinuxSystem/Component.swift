internal import SystemPackage

/// One component of a path: the name of an entry in a directory. It leads nowhere else, because it has no slash and is
/// neither `.` nor `..`. The calls on a directory's entries (DirectoryEntries.swift) accept only such names, so neither
/// a name from the store nor one made by vaultfs leads through a planted link.
package struct Component: Hashable, Sendable {
    package let bytes: [UInt8]

    /// - Throws: `EINVAL` unless the bytes are one component.
    @inlinable
    package init(_ bytes: [UInt8]) throws(StoreError) {
        guard Self.isOne(bytes) else { throw .refused(.invalidArgument) }
        self.bytes = bytes
    }

    private init(joining bytes: [UInt8]) { self.bytes = bytes }

    /// Returns true for a possible name of a directory's entry, whatever its length.
    @inlinable
    package static func isOne(_ bytes: [UInt8]) -> Bool {
        let (slash, dot) = (UInt8(ascii: "/"), UInt8(ascii: "."))
        // This excludes `.`, `..`, and an empty name.
        if bytes.count <= 2 && bytes.allSatisfy({ $0 == dot }) { return false }
        return bytes.allSatisfy { $0 != slash && $0 != 0 }
    }

    /// Makes the 16 hexadecimal digits of a number.
    package init(hexadecimal number: UInt64) { self.init(joining: Array(Hexadecimal.encode(number).utf8)) }

    /// Returns a component with the bytes of `first`, then those of `second`.
    package static func + (first: Component, second: Component) -> Component {
        Component(joining: first.bytes + second.bytes)
    }
}

extension Component: ExpressibleByStringLiteral {
    /// Makes a component from a literal, which must not have a slash.
    package init(stringLiteral text: StaticString) {
        let bytes = text.withUTF8Buffer { Array($0) }
        precondition(Self.isOne(bytes), "not one component")
        self.bytes = bytes
    }
}

extension Component: CustomStringConvertible {
    package var description: String { String(decoding: bytes, as: UTF8.self) }
}

extension Component: RandomAccessCollection {
    @inlinable package var startIndex: Int { 0 }
    @inlinable package var endIndex: Int { bytes.count }
    @inlinable package subscript(position: Int) -> UInt8 { bytes[position] }
}
