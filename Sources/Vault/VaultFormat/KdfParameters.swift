internal import LinuxSystem
internal import VaultCrypto

/// The kind of secret that a slot accepts.
package enum SlotKind: String, Sendable, CaseIterable {
    case passphrase, keyfile, recovery
}

/// The derivation of a slot's key-encryption key from its secret: scrypt for passphrases, HKDF-SHA256 for keyfiles and
/// recovery keys, which cannot be guessed.
package struct KdfParameters: Sendable, Equatable {
    package static let saltSize = 32

    /// The cost of a guess. Nil for secrets that cannot be guessed.
    package let cost: ScryptCost?
    package let salt: [UInt8]

    /// The parameters in the MAC's text: `scrypt,<logN>,<r>,<p>,<salt>` or `hkdf-sha256,<salt>`.
    var canonicalText: String {
        (cost.map { "scrypt,\($0.logN),\($0.r),\($0.p)" } ?? "hkdf-sha256") + ",\(Self.text(salt))"
    }

    static func text(_ bytes: [UInt8]) -> String { String(decoding: Base64.url.encode(bytes), as: UTF8.self) }

    /// Derives the 64-byte key-encryption key.
    func keyEncryptionKey(from secret: SlotSecret) throws(FormatError) -> SecretBytes {
        if let cost {
            return try cryptography(
                "key derivation",
                Scrypt.derive(passphrase: secret.bytes, salt: salt, logN: cost.logN, r: cost.r, p: cost.p, count: 64))
        }
        return try cryptography(
            "key derivation",
            Hkdf.derive(secret: secret.bytes, salt: salt, info: Array("vaultfs 1 kek".utf8), count: 64))
    }
}
