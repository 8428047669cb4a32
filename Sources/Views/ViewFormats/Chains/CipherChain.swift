internal import LinuxSystem

/// One CBC chain: consecutive bytes of a source file, encrypted together. A file of a view is a list of chains.
package struct CipherChain: Equatable, Sendable {
    package enum Vector: Equatable, Sendable {
        case bytes(InitialVector)
        /// 16 bytes of the source file from this offset.
        case inFile(at: UInt64)
    }

    package enum Padding: String, CaseIterable, Codable, Sendable {
        case pkcs7, none
    }

    package struct Encryption: Equatable, Sendable {
        /// The position of the key in the file's list of keys.
        package var key: Int
        package var vector: Vector
        package var padding: Padding
    }

    /// Bytes of the source file, without the initial vector.
    package var ciphertext: Range<UInt64>
    /// Nil if the bytes are plaintext.
    package var encryption: Encryption?
}

/// The initial vector of a CBC chain: 16 bytes, as two big-endian numbers.
package struct InitialVector: Codable, Hashable, Sendable {
    package static let zero = InitialVector(high: 0, low: 0)

    package var high, low: UInt64

    package init(high: UInt64, low: UInt64) {
        self.high = high
        self.low = low
    }

    /// Reads exactly 16 bytes; nil for another number.
    package init?(_ bytes: UnsafeRawBufferPointer) {
        guard bytes.count == 16 else { return nil }
        high = UInt64(bigEndian: bytes.loadUnaligned(fromByteOffset: 0, as: UInt64.self))
        low = UInt64(bigEndian: bytes.loadUnaligned(fromByteOffset: 8, as: UInt64.self))
    }

    /// Reads 32 digits in either case, with or without `0x`.
    package init?(hexadecimal text: [UInt8]) {
        let digits = Hexadecimal.withoutPrefix(text[...]) ?? text[...]
        guard digits.count == 32 else { return nil }
        self.init(digits: digits)
    }

    /// Reads 1 to 32 digits of a number.
    init?(digits: ArraySlice<UInt8>) {
        guard 1...32 ~= digits.count else { return nil }
        self = .zero
        for digit in digits {
            guard let value = Hexadecimal.value(of: digit) else { return nil }
            high = high << 4 | low >> 60
            low = low << 4 | UInt64(value)
        }
    }

    /// Writes the 16 bytes.
    func store(into bytes: UnsafeMutableRawBufferPointer) {
        bytes.storeBytes(of: high.bigEndian, toByteOffset: 0, as: UInt64.self)
        bytes.storeBytes(of: low.bigEndian, toByteOffset: 8, as: UInt64.self)
    }
}
