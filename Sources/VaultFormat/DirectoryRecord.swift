package import VaultCrypto

/// The 64 bytes of a `vaultfs.dir` (FileFormat, Directory record): the wrapped directory secret.
package struct DirectoryRecord: Sendable {
    package static let size = 64
    package static let magic: [UInt8] = Array("VFSD".utf8)
    private static let identitySize = 16

    /// The class whose key wraps the directory secret.
    package let protectionClass: ProtectionClass
    /// The key epoch of that key.
    package let epoch: UInt8
    /// True if this is the record of the vault's root. It is valid only there. The caller checks that.
    package let isRoot: Bool
    package let bytes: [UInt8]

    /// A record with a new secret, and its keys. `classCipher` is under the class key.
    package static func make(
        _ protectionClass: ProtectionClass, epoch: UInt8 = 0, isRoot: Bool, classCipher: SivCipher, vault: VaultID
    ) throws(FormatError) -> (bytes: [UInt8], keys: DirectoryKeys) {
        let identity = identity(protectionClass, epoch, isRoot: isRoot)
        let associatedData = [identity]
        let (secret, wrapped) = try cryptography("directory record: secret") { () throws(CryptoError) in
            let secret = try SecretBytes.random(count: KeyDerivation.secretSize)
            return (secret, try classCipher.encryptSecret(secret, associatedData: associatedData))
        }
        return (identity + wrapped, try DirectoryKeys(secret: secret, vault: vault))
    }

    /// Checks the structure of exactly 64 bytes. Nothing is authenticated before `openKeys` has returned. `epochs` are
    /// the vault's.
    package static func parse(_ bytes: [UInt8], epochs: KeyEpochs = .first) throws(FormatError) -> DirectoryRecord {
        guard bytes.count == size else {
            throw FormatError(.malformed, "directory record: \(bytes.count) bytes instead of \(size)")
        }
        guard bytes.starts(with: magic) else { throw FormatError(.malformed, "directory record: no directory magic") }
        guard bytes[4] == 1 else { throw FormatError(.newerVersion, "directory record: unknown version \(bytes[4])") }
        guard let protectionClass = ProtectionClass(rawValue: bytes[5]) else {
            throw FormatError(.malformed, "directory record: unknown protection class \(bytes[5])")
        }
        guard bytes[6] & ~1 == 0 else {
            throw FormatError(.malformed, "directory record: unknown flags \(bytes[6])")
        }
        guard epochs.contains(bytes[7]) else {
            throw FormatError(.newerVersion, "directory record: \(epochs.unknown(bytes[7]))")
        }
        guard bytes[8..<identitySize].allSatisfy({ $0 == 0 }) else {
            throw FormatError(.malformed, "directory record: reserved bytes are not zero")
        }
        return DirectoryRecord(
            protectionClass: protectionClass, epoch: bytes[7], isRoot: bytes[6] == 1, bytes: bytes)
    }

    /// Unwraps the directory secret, which authenticates the record, and derives its keys.
    package func openKeys(classCipher: SivCipher, vault: VaultID) throws(FormatError) -> DirectoryKeys {
        try DirectoryKeys(secret: try unwrapped(classCipher), vault: vault)
    }

    /// Puts the keys of this record back into an object that has forgotten them. Throws as `openKeys`.
    package func restore(
        _ keys: DirectoryKeys, classCipher: SivCipher, vault: VaultID
    ) throws(FormatError) {
        try keys.restore(secret: try unwrapped(classCipher), vault: vault)
    }

    private func unwrapped(_ classCipher: SivCipher) throws(FormatError) -> SecretBytes {
        let wrapped = Array(bytes[Self.identitySize...])
        let associatedData = [Array(bytes[..<Self.identitySize])]
        return try cryptography("directory record: secret") { () throws(CryptoError) in
            try classCipher.decryptSecret(wrapped, associatedData: associatedData)
        }
    }

    /// The bytes of the same record for another class: the directory secret, and so every name, and the flag stay.
    ///
    /// `oldCipher` and `newCipher` are under the class keys of the record's epoch. Throws `doesNotAuthenticate`.
    package func rewrapped(
        as newClass: ProtectionClass, from oldCipher: SivCipher, to newCipher: SivCipher
    ) throws(FormatError) -> [UInt8] {
        let wrapped = Array(bytes[Self.identitySize...])
        let oldAssociatedData = [Array(bytes[..<Self.identitySize])]
        let newIdentity = Self.identity(newClass, epoch, isRoot: isRoot)
        return try cryptography("directory record: secret") { () throws(CryptoError) in
            let secret = try oldCipher.decryptSecret(wrapped, associatedData: oldAssociatedData)
            return newIdentity + (try newCipher.encryptSecret(secret, associatedData: [newIdentity]))
        }
    }

    /// Bytes 0…15.
    private static func identity(_ protectionClass: ProtectionClass, _ epoch: UInt8, isRoot: Bool) -> [UInt8] {
        magic + [1, protectionClass.rawValue, isRoot ? 1 : 0, epoch, 0, 0, 0, 0, 0, 0, 0, 0]
    }
}
