package import VaultCrypto

/// The keys that follow from the master key (FileFormat, Keys): HKDF-SHA256 salted with the vault's id.
package enum KeyDerivation {
    /// The size of a master key, and of a file or directory secret.
    package static let secretSize = 32

    /// The 64-byte SIV key that wraps the file and directory secrets of class `protectionClass`.
    package static func classKey(
        master: SecretBytes, vault: VaultID, _ protectionClass: ProtectionClass
    ) throws(FormatError) -> SecretBytes {
        try derive(master, vault, info: "vaultfs 1 class \(protectionClass.rawValue)", count: 64)
    }

    /// The 64-byte SIV key that encrypts the symbolic links of class `protectionClass`.
    package static func linkKey(
        master: SecretBytes, vault: VaultID, _ protectionClass: ProtectionClass
    ) throws(FormatError) -> SecretBytes {
        try derive(master, vault, info: "vaultfs 1 links \(protectionClass.rawValue)", count: 64)
    }

    /// The 32-byte HMAC key of `vaultfs.json`.
    package static func configurationKey(master: SecretBytes, vault: VaultID) throws(FormatError) -> SecretBytes {
        try derive(master, vault, info: "vaultfs 1 config", count: 32)
    }

    /// The 64-byte SIV key that the master key of the epoch before is sealed under.
    static func previousKey(master: SecretBytes, vault: VaultID) throws(FormatError) -> SecretBytes {
        try derive(master, vault, info: "vaultfs 1 previous", count: 64)
    }

    /// The 64-byte SIV key of `vaultfs.rekey`.
    package static func intentKey(master: SecretBytes, vault: VaultID) throws(FormatError) -> SecretBytes {
        try derive(master, vault, info: "vaultfs 1 rekey", count: 64)
    }

    /// HKDF-SHA256 of `secret`, salted with the vault's id.
    static func derive(
        _ secret: SecretBytes, _ vault: VaultID, info: String, count: Int
    ) throws(FormatError) -> SecretBytes {
        try cryptography(
            "derivation of '\(info)'", Hkdf.derive(secret: secret, salt: vault.bytes, info: info, count: count))
    }
}

extension UnsafeRawBufferPointer {
    /// The little-endian 64-bit integer at `position`, which needs no alignment.
    func littleEndian64(at position: Int) -> UInt64 {
        UInt64(littleEndian: loadUnaligned(fromByteOffset: position, as: UInt64.self))
    }
}

extension UnsafeMutableRawBufferPointer {
    /// Writes `value` as a little-endian 64-bit integer at `position`, which needs no alignment.
    func storeLittleEndian64(_ value: UInt64, at position: Int) {
        storeBytes(of: value.littleEndian, toByteOffset: position, as: UInt64.self)
    }
}

extension [UInt8] {
    /// Writes `value` as a little-endian 64-bit integer at `position`.
    mutating func storeLittleEndian64(_ value: UInt64, at position: Int) {
        withUnsafeMutableBytes { $0.storeLittleEndian64(value, at: position) }
    }
}
