internal import LinuxSystem
internal import VaultCrypto

/// The random identity of a vault: 16 bytes, the salt of every key derived in it (FileFormat, vaultfs.json).
package struct VaultID: Hashable, Sendable {
    package static let size = 16

    package let bytes: [UInt8]

    /// The 32 lower-case hexadecimal digits in `vaultfs.json`.
    package var hex: String { Hexadecimal.encode(bytes) }
}

extension VaultID {
    /// Makes a new random identity. Throws when the library has no random bytes.
    package static func random() throws(FormatError) -> VaultID {
        VaultID(bytes: try cryptography("vault id", SecureRandom.bytes(count: size)))
    }

    /// Parses exactly 32 lower-case digits. Nil for other spellings, because the head lines contain the spelling.
    package init?(hex text: [UInt8]) {
        guard let bytes = Hexadecimal.decode(text), bytes.count == Self.size else { return nil }
        self.init(bytes: bytes)
        guard Array(hex.utf8) == text else { return nil }
    }
}
