internal import LinuxSystem
internal import VaultCrypto
internal import VaultFormat

/// Makes and opens file headers and directory records with the vault's keys.
/// - Throws: `.damaged` if something does not parse or authenticate; `.locked` if the key of its class is forgotten.
extension KeyRing {
    /// A header for a new, empty file, of the current epoch; and the file's keys.
    func makeHeader(_ protectionClass: ProtectionClass) throws(StoreError) -> (header: FileHeader, keys: FileKeys) {
        let cipher = try classCipher(protectionClass)
        return try StoreError.ofFormat(
            try FileHeader.make(protectionClass, epoch: epochs.current, classCipher: cipher, vault: vault))
    }

    /// Authenticates a header of 128 bytes.
    func openHeader(_ bytes: UnsafeRawBufferPointer) throws(StoreError) -> (header: FileHeader, keys: FileKeys) {
        let header = try StoreError.ofFormat(FileHeader.parse(bytes, epochs: epochs))
        let cipher = try classCipher(header.protectionClass, epoch: header.epoch)
        return try StoreError.ofFormat((header, try header.openKeys(classCipher: cipher, vault: vault)))
    }

    /// A record for a new directory, of the current epoch; and the directory's keys.
    func makeRecord(
        _ protectionClass: ProtectionClass, isRoot: Bool = false
    ) throws(StoreError) -> (bytes: [UInt8], keys: DirectoryKeys) {
        let cipher = try classCipher(protectionClass)
        return try StoreError.ofFormat(
            try DirectoryRecord.make(
                protectionClass, epoch: epochs.current, isRoot: isRoot, classCipher: cipher, vault: vault))
    }

    /// Checks only the structure of a record.
    func parseRecord(_ bytes: [UInt8]) throws(StoreError) -> DirectoryRecord {
        try StoreError.ofFormat(DirectoryRecord.parse(bytes, epochs: epochs))
    }
}

extension DirectoryRecord {
    /// Authenticates the record and derives the directory's keys.
    /// - Throws: `.damaged`; `.locked` if the key of its class is forgotten.
    func openKeys(_ keyRing: KeyRing) throws(StoreError) -> DirectoryKeys {
        let cipher = try keyRing.classCipher(protectionClass, epoch: epoch)
        return try StoreError.ofFormat(openKeys(classCipher: cipher, vault: keyRing.vault))
    }
}
