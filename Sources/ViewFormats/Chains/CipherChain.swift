/// One CBC chain: consecutive bytes of a source file that were encrypted by themselves. A plaintext file of a view is a
/// list of these, one behind the other.
package struct CipherChain: Equatable, Sendable {
    /// Where the initial vector is.
    package enum Vector: Equatable, Sendable {
        case bytes(InitialVector)
        /// 16 bytes of the source file from this offset.
        case inFile(at: UInt64)
    }

    package enum Padding: String, CaseIterable, Codable, Sendable {
        case pkcs7
        case none
    }

    package struct Encryption: Equatable, Sendable {
        /// Which of the file's keys.
        package var key: Int
        package var vector: Vector
        package var padding: Padding

        package init(key: Int, vector: Vector, padding: Padding) {
            self.key = key
            self.vector = vector
            self.padding = padding
        }
    }

    /// Bytes of the source file, without the initial vector.
    package var ciphertext: Range<UInt64>
    /// Nil: the bytes are plaintext.
    package var encryption: Encryption?

    package init(ciphertext: Range<UInt64>, encryption: Encryption?) {
        self.ciphertext = ciphertext
        self.encryption = encryption
    }
}

/// The 16 bytes that the first block of a CBC chain is combined with.
package struct InitialVector: Codable, Equatable, Sendable {
    package static let zero = InitialVector(high: 0, low: 0)

    /// The bytes in order, as two big-endian numbers.
    package var high: UInt64
    package var low: UInt64

    package init(high: UInt64, low: UInt64) {
        self.high = high
        self.low = low
    }
}
