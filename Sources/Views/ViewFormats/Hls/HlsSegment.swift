/// The encryption of a file named by playlists as a segment. Immutable. Any thread.
package struct HlsSegment: Equatable, Sendable {
    /// AES-128-CBC with PKCS#7.
    package struct Encryption: Hashable, Sendable {
        package var key: KeyName
        package var vector: InitialVector
    }

    package struct Part: Equatable, Sendable {
        /// Ciphertext offsets; nil for the whole file.
        package var bytes: Range<UInt64>?
        package var encryption: Encryption
    }

    /// The encrypted parts, in ascending order, without overlap. The rest of the file is plaintext.
    package let parts: [Part]
    /// Each key once, in the order of the parts.
    package let keys: [KeyName]

    init(_ parts: [Part]) {
        self.parts = parts
        var seen: Set<KeyName> = []
        keys = parts.map(\.encryption.key).filter { seen.insert($0).inserted }
    }

    /// True if byte ranges of the plaintext differ from those of the ciphertext.
    var isRanged: Bool { parts.contains { $0.bytes != nil } }
}
