internal import LinuxSystem
internal import VaultCrypto

/// The kind of secret that a slot accepts.
package enum SlotKind: String, Sendable, CaseIterable {
    case passphrase, keyfile, recovery
}

/// The derivation of a slot's key-encryption key from its secret. `salt` has 32 bytes.
package enum KdfParameters: Sendable, Equatable {
    package static let saltSize = 32

    /// For passphrases.
    case scrypt(ScryptCost, salt: [UInt8])
    /// For keyfiles and recovery keys, which cannot be guessed.
    case hkdfSha256(salt: [UInt8])

    /// The cost of a guess. Nil for secrets that cannot be guessed.
    package var cost: ScryptCost? {
        if case .scrypt(let cost, _) = self { cost } else { nil }
    }

    /// The parameters in the MAC's text: `scrypt,<logN>,<r>,<p>,<salt>` or `hkdf-sha256,<salt>`.
    var canonicalText: String {
        switch self {
        case .scrypt(let cost, let salt): "scrypt,\(cost.logN),\(cost.r),\(cost.p),\(Self.text(salt))"
        case .hkdfSha256(let salt): "hkdf-sha256,\(Self.text(salt))"
        }
    }

    /// Returns the salt in base64url.
    static func text(_ bytes: [UInt8]) -> String { String(decoding: Base64.url.encode(bytes), as: UTF8.self) }

    /// Derives the 64-byte key-encryption key.
    func keyEncryptionKey(from secret: SlotSecret) throws(FormatError) -> SecretBytes {
        switch self {
        case .scrypt(let cost, let salt):
            try cryptography(
                "key derivation",
                Scrypt.derive(
                    passphrase: secret.bytes, salt: salt, logN: cost.logN, r: cost.r, p: cost.p, count: 64))
        case .hkdfSha256(let salt):
            try cryptography(
                "key derivation",
                Hkdf.derive(secret: secret.bytes, salt: salt, info: Array("vaultfs 1 kek".utf8), count: 64))
        }
    }
}
