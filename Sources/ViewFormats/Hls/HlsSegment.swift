/// How a file is encrypted that playlists name as a segment. Never changes; any thread.
package final class HlsSegment: Sendable {
    package struct Part: Equatable, Sendable {
        /// Ciphertext offsets; nil: the whole file.
        package var bytes: Range<UInt64>?
        package var encryption: HlsEncryption
    }

    /// What is encrypted, in ascending order, not overlapping, at least one; the rest of the file is plaintext.
    package let parts: [Part]
    /// Each once, in the order of the parts.
    package let keys: [HlsKeyName]
    private let keyNumbers: [Int]

    init(_ parts: [Part]) {
        self.parts = parts
        var keys: [HlsKeyName] = []
        var numbers: [HlsKeyName: Int] = [:]
        keyNumbers = parts.map { part in
            if let number = numbers[part.encryption.key] { return number }
            keys.append(part.encryption.key)
            numbers[part.encryption.key] = keys.count - 1
            return keys.count - 1
        }
        self.keys = keys
    }

    /// Whether byte ranges of the plaintext differ from those of the ciphertext.
    var isRanged: Bool { parts.contains { $0.bytes != nil } }

    /// The encrypted chains of a file of `size` bytes, their keys being positions in `keys`.
    package func chains(size: UInt64) -> [CipherChain] {
        zip(parts, keyNumbers).map { part, key in
            CipherChain(
                ciphertext: part.bytes ?? 0..<size,
                encryption: CipherChain.Encryption(key: key, vector: .bytes(part.encryption.vector), padding: .pkcs7))
        }
    }
}
