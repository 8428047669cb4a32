package import VaultCrypto

/// The 64 bytes of a `vaultfs.dir` (FileFormat, Directory record): the wrapped directory secret.
package struct DirectoryRecord: Sendable {
    package static let size = WrappedSecret.size
    package static let magic = WrappedSecret.Kind.directory.magic

    private let wrapped: WrappedSecret
    package var protectionClass: ProtectionClass { wrapped.protectionClass }
    package var epoch: UInt8 { wrapped.epoch }
    /// True for the record of the vault's root, which is valid only there. The caller checks this.
    package var isRoot: Bool { bytes[6] == 1 }
    package var bytes: [UInt8] { wrapped.bytes }

    /// Makes a record with a new secret, and returns it with its keys. `classCipher` is under the class key.
    /// - Throws: `cryptography`; `keyForgotten`.
    package static func make(
        _ protectionClass: ProtectionClass, epoch: UInt8 = 0, isRoot: Bool, classCipher: SivCipher, vault: VaultID
    ) throws(FormatError) -> (bytes: [UInt8], keys: DirectoryKeys) {
        let (wrapped, secret) = try WrappedSecret.make(
            .directory, protectionClass, detail: isRoot ? 1 : 0, epoch: epoch, classCipher: classCipher)
        return (wrapped.bytes, try DirectoryKeys(secret: secret, vault: vault))
    }

    /// Checks the structure of exactly 64 bytes. Only `unwrapKeys` authenticates them. `epochs` are the vault's.
    /// - Throws: `malformed`, `newerVersion`.
    package static func parse(_ bytes: [UInt8], epochs: KeyEpochs = .first) throws(FormatError) -> DirectoryRecord {
        try require(bytes.count == size, .malformed, "directory record: \(bytes.count) bytes instead of \(size)")
        let wrapped = try WrappedSecret(parsing: bytes, .directory, epochs: epochs)
        try require(bytes[6] & ~1 == 0, .malformed, "directory record: unknown flags \(bytes[6])")
        try require(bytes[8..<16].allSatisfy { $0 == 0 }, .malformed, "directory record: reserved bytes are not zero")
        return DirectoryRecord(wrapped: wrapped)
    }

    /// Unwraps the directory secret, which authenticates the record, and derives its keys.
    /// - Throws: `doesNotAuthenticate`; `keyForgotten` at a lock.
    package func unwrapKeys(classCipher: SivCipher, vault: VaultID) throws(FormatError) -> DirectoryKeys {
        try DirectoryKeys(secret: wrapped.unwrap(classCipher), vault: vault)
    }

    /// Puts the keys of this record back into an object whose keys were wiped. Throws as `unwrapKeys`.
    package func restore(_ keys: DirectoryKeys, classCipher: SivCipher, vault: VaultID) throws(FormatError) {
        try keys.restore(secret: wrapped.unwrap(classCipher), vault: vault)
    }

    /// Returns the bytes of the same record for another class, with the same flag and the same directory secret, so
    /// every name stays valid. `oldCipher` and `newCipher` are under the class keys of the record's epoch. Throws
    /// `doesNotAuthenticate`.
    package func rewrapped(
        as newClass: ProtectionClass, from oldCipher: SivCipher, to newCipher: SivCipher
    ) throws(FormatError) -> [UInt8] { try wrapped.rewrapped(as: newClass, from: oldCipher, to: newCipher).bytes }
}
