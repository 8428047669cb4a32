internal import LinuxSystem
import VaultCrypto

/// The kind of secret that a slot accepts.
package enum SlotKind: String, Sendable, CaseIterable {
    case passphrase
    case keyfile
    case recovery
}

/// The cost of one scrypt derivation (RFC 7914), within the format's bounds.
package struct ScryptCost: Sendable, Equatable {
    package static let logNRange = 10...22
    package static let rRange = 1...32
    package static let pRange = 1...16
    /// The most memory a derivation may take, in bytes, counted as 128·r·2^logN.
    package static let maximumMemory = 1 << 30

    package let logN: Int
    package let r: Int
    package let p: Int

    /// The default cost of a new passphrase slot: 128 MiB, about half a second.
    package static let standard = ScryptCost(unchecked: 17, r: 8, p: 1)

    /// Throws `invalidValue` outside the bounds.
    package init(logN: Int, r: Int, p: Int) throws(FormatError) {
        guard Self.logNRange.contains(logN), Self.rRange.contains(r), Self.pRange.contains(p) else {
            throw FormatError(
                .invalidValue,
                """
                scrypt parameters logN \(logN), r \(r), p \(p) are outside the bounds: logN 10 to 22, r 1 to 32, p 1 to 16
                """)
        }
        self.init(unchecked: logN, r: r, p: p)
        guard memory <= Self.maximumMemory else {
            throw FormatError(
                .invalidValue, "scrypt parameters logN \(logN), r \(r) take \(memory >> 20) MiB of memory, over 1024")
        }
    }

    /// Bytes of memory that a derivation takes, and with it a guess.
    package var memory: Int { 128 * r << logN }

    /// The work of a derivation: N·r·p, at most 2²⁷.
    package var work: Int { r * p << logN }

    /// True if a guess takes at least as much memory and at least as much work as at `other`.
    package func isAtLeast(_ other: ScryptCost) -> Bool {
        memory >= other.memory && memory * p >= other.memory * other.p
    }

    /// The parameters of a slot of this cost.
    func parameters(salt: [UInt8]) -> KdfParameters { .scrypt(logN: logN, r: r, p: p, salt: salt) }

    private init(unchecked logN: Int, r: Int, p: Int) {
        self.logN = logN
        self.r = r
        self.p = p
    }
}

/// How a slot's key-encryption key follows from its secret. `salt` has 32 bytes.
package enum KdfParameters: Sendable, Equatable {
    package static let saltSize = 32

    /// For passphrases.
    case scrypt(logN: Int, r: Int, p: Int, salt: [UInt8])
    /// For keyfiles and recovery keys, which cannot be guessed.
    case hkdfSha256(salt: [UInt8])

    /// The cost of a guess. Nil for secrets that cannot be guessed.
    package var cost: ScryptCost? {
        switch self {
        // Within the bounds, since it was parsed or made.
        case .scrypt(let logN, let r, let p, _): try? ScryptCost(logN: logN, r: r, p: p)
        case .hkdfSha256: nil
        }
    }

    /// As the MAC's text has it: `scrypt,<logN>,<r>,<p>,<salt>` or `hkdf-sha256,<salt>`.
    var canonicalText: String {
        switch self {
        case .scrypt(let logN, let r, let p, let salt): "scrypt,\(logN),\(r),\(p),\(Self.text(salt))"
        case .hkdfSha256(let salt): "hkdf-sha256,\(Self.text(salt))"
        }
    }

    /// The salt in base64url.
    static func text(_ bytes: [UInt8]) -> String { String(decoding: Base64.url.encode(bytes), as: UTF8.self) }

    /// The 64-byte key-encryption key.
    func keyEncryptionKey(from secret: SlotSecret) throws(FormatError) -> SecretBytes {
        try cryptography("key derivation") { () throws(CryptoError) in
            switch self {
            case .scrypt(let logN, let r, let p, let salt):
                try Scrypt.derive(passphrase: secret.bytes, salt: salt, logN: logN, r: r, p: p, count: 64)
            case .hkdfSha256(let salt):
                try Hkdf.derive(secret: secret.bytes, salt: salt, info: "vaultfs 1 kek", count: 64)
            }
        }
    }
}
