/// How a file that playlists name as a segment is encrypted. Immutable. Any thread.
package final class HlsSegment: Sendable {
    /// AES-128-CBC with PKCS#7.
    package struct Encryption: Equatable, Sendable {
        package var key: KeyName
        package var vector: InitialVector

        func means(_ other: Encryption) -> Bool {
            vector == other.vector && key.means(other.key)
        }
    }

    package struct Part: Equatable, Sendable {
        /// Ciphertext offsets. Nil for the whole file.
        package var bytes: Range<UInt64>?
        package var encryption: Encryption
    }

    /// The encrypted parts, at least one, in ascending order, without overlap. The rest of the file is plaintext.
    package let parts: [Part]
    /// Each key once, in the order of the parts.
    package let keys: [KeyName]
    private let keyNumbers: [Int]

    init(_ parts: [Part]) {
        self.parts = parts
        var keys: [KeyName] = []
        var numbers: [KeyName: Int] = [:]
        keyNumbers = parts.map { part in
            if let number = numbers[part.encryption.key] { return number }
            keys.append(part.encryption.key)
            numbers[part.encryption.key] = keys.count - 1
            return keys.count - 1
        }
        self.keys = keys
    }

    /// True if byte ranges of the plaintext differ from those of the ciphertext.
    var isRanged: Bool { parts.contains { $0.bytes != nil } }

    /// The encrypted chains of a file of `size` bytes. Their key numbers are positions in `keys`.
    package func chains(size: UInt64) -> [CipherChain] {
        zip(parts, keyNumbers).map { part, key in
            CipherChain(
                ciphertext: part.bytes ?? 0..<size,
                encryption: CipherChain.Encryption(key: key, vector: .bytes(part.encryption.vector), padding: .pkcs7))
        }
    }
}
