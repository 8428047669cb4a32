package import VaultCrypto

/// The keys derived from the master key (FileFormat, Keys): HKDF-SHA256 salted with the vault's id.
package enum KeyDerivation {
    /// The size of a master key, and of a file or directory secret.
    package static let secretSize = 32

    /// Derives the 64-byte SIV key that wraps the file and directory secrets of class `protectionClass`.
    /// - Throws: `cryptography`; `keyForgotten`.
    package static func classKey(
        master: SecretBytes, vault: VaultID, _ protectionClass: ProtectionClass
    ) throws(FormatError) -> SecretBytes {
        try derive(master, vault, info: "vaultfs 1 class \(protectionClass.rawValue)", count: 64)
    }

    /// Derives the 64-byte SIV key that encrypts the symbolic links of class `protectionClass`.
    /// - Throws: `cryptography`; `keyForgotten`.
    package static func linkKey(
        master: SecretBytes, vault: VaultID, _ protectionClass: ProtectionClass
    ) throws(FormatError) -> SecretBytes {
        try derive(master, vault, info: "vaultfs 1 links \(protectionClass.rawValue)", count: 64)
    }

    /// Derives the 32-byte HMAC key of `vaultfs.json`.
    /// - Throws: `cryptography`; `keyForgotten`.
    package static func configurationKey(master: SecretBytes, vault: VaultID) throws(FormatError) -> SecretBytes {
        try derive(master, vault, info: "vaultfs 1 config", count: 32)
    }

    /// Derives the 64-byte SIV key that encrypts the previous epoch's master key.
    static func previousKey(master: SecretBytes, vault: VaultID) throws(FormatError) -> SecretBytes {
        try derive(master, vault, info: "vaultfs 1 previous", count: 64)
    }

    /// Derives the 64-byte SIV key of `vaultfs.rekey`.
    /// - Throws: `cryptography`; `keyForgotten`.
    package static func intentKey(master: SecretBytes, vault: VaultID) throws(FormatError) -> SecretBytes {
        try derive(master, vault, info: "vaultfs 1 rekey", count: 64)
    }

    /// Derives the keys of the tags in `vaultfs.log`, which encrypt nothing.
    /// - Throws: `cryptography`; `keyForgotten`.
    package static func logKeys(master: SecretBytes, vault: VaultID) throws(FormatError) -> ChunkKeys {
        let keys = try derive(master, vault, info: "vaultfs 1 log", count: 80)
        return ChunkKeys(
            cipherKey: keys.subrange(0..<32), macKey: keys.subrange(32..<64), macR: keys.subrange(64..<80))
    }

    /// Derives a key from `secret` with HKDF-SHA256, salted with the vault's id.
    static func derive(
        _ secret: SecretBytes, _ vault: VaultID, info: String, count: Int
    ) throws(FormatError) -> SecretBytes {
        try cryptography(
            "derivation of '\(info)'",
            Hkdf.derive(secret: secret, salt: vault.bytes, info: Array(info.utf8), count: count))
    }
}

/// The keys derived from a directory secret (FileFormat, Directory record). Any thread.
package final class DirectoryKeys: Sendable {
    /// The cipher of the names in the directory.
    package let nameCipher: SivCipher
    /// The 64-byte SIV key of the directory's own extended attributes.
    package let attributeKey: SecretBytes
    /// Equal for two directories only if they share a secret. Not a key, so it stays when the keys are wiped.
    package let identity: [UInt8]

    init(secret: SecretBytes, vault: VaultID) throws(FormatError) {
        let nameKey: SecretBytes
        (nameKey, attributeKey, identity) = try Self.derive(secret, vault)
        nameCipher = try cryptography("directory record: name key", SivCipher(key: nameKey))
    }

    private static func derive(
        _ secret: SecretBytes, _ vault: VaultID
    ) throws(FormatError) -> (nameKey: SecretBytes, attributeKey: SecretBytes, identity: [UInt8]) {
        // The identity reveals nothing, because it is independent of the keys before it (RFC 5869).
        let keys = try KeyDerivation.derive(secret, vault, info: "vaultfs 1 directory", count: 144)
        let identity = keys.withUnsafeBytes { Array($0[128..<144]) }
        return (keys.subrange(0..<64), keys.subrange(64..<128), identity)
    }

    package var isForgotten: Bool { attributeKey.isForgotten }

    /// Derives the keys again from the same secret. Call this and ``forget()`` from one thread at a time.
    func restore(secret: SecretBytes, vault: VaultID) throws(FormatError) {
        let derived = try Self.derive(secret, vault)
        try cryptography("directory record: name key", nameCipher.rekey(derived.nameKey))
        attributeKey.refill(from: derived.attributeKey)
    }

    /// Wipes the keys in place. Users of the keys then get `keyForgotten`.
    package func forget() {
        nameCipher.forget()
        attributeKey.forget()
    }
}

/// The keys derived from a file secret (FileFormat, File header): for a file's chunks, header state and attributes.
///
/// They outlive the class key, so a locked class still lets an open file grow and be sealed. Any thread.
package final class FileKeys: Sendable {
    /// The keys of the file's chunks.
    package let chunk: ChunkKeys
    /// The 64-byte SIV key of the file's extended attributes.
    package let attributeKey: SecretBytes
    /// The 32-byte HMAC key of the header's state.
    let stateKey: SecretBytes

    init(secret: SecretBytes, vault: VaultID) throws(FormatError) {
        let keys = try KeyDerivation.derive(secret, vault, info: "vaultfs 1 file", count: 176)
        chunk = ChunkKeys(
            cipherKey: keys.subrange(0..<32), macKey: keys.subrange(32..<64), macR: keys.subrange(64..<80))
        stateKey = keys.subrange(80..<112)
        attributeKey = keys.subrange(112..<176)
    }

    package var isForgotten: Bool { stateKey.isForgotten }

    /// Wipes the keys in place. Their users then get `keyForgotten`. Call this and ``refill(from:)`` from one thread at
    /// a time.
    package func forget() {
        chunk.forget()
        stateKey.forget()
        attributeKey.forget()
    }

    /// Restores the wiped keys from fresh copies of them.
    package func refill(from other: FileKeys) {
        chunk.refill(from: other.chunk)
        stateKey.refill(from: other.stateKey)
        attributeKey.refill(from: other.attributeKey)
    }
}
