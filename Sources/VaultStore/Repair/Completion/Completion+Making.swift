internal import CLinux
internal import FileSystem
internal import Glibc
internal import LinuxSystem
internal import SystemPackage
internal import VaultCrypto
internal import VaultFormat

extension OpenDirectory {
    /// Returns true if a directory's record is absent, or shorter than any record.
    static func lacksRecord(_ directory: Descriptor) throws(StoreError) -> Bool {
        do throws(StoreError) {
            let status = try directory.status(of: recordEntry)
            return status.st_mode & S_IFMT == S_IFREG && status.st_size < off_t(DirectoryRecord.size)
        } catch .system(.noSuchFileOrDirectory) {
            return true
        }
    }

    /// Returns true if a directory holds nothing but a record and the remains of interrupted operations.
    static func isEmpty(_ directory: Descriptor) throws(StoreError) -> Bool {
        var reader = DirectoryReader(try directory.inner([UInt8(ascii: ".")]))
        while let found = try reader.next() {
            if found.name != recordEntry && EntryName.kind(of: found.name) != .temporary { return false }
        }
        return true
    }

    /// Makes the record of a directory that has none, with a new secret, durably. Owner, mode and times stay.
    /// - Parameter mode: of the record. It belongs to the owner of its directory, which only root can set.
    static func makeRecord(
        of pin: Descriptor, class protectionClass: ProtectionClass, isRoot: Bool = false, mode: mode_t = 0o644,
        in store: Store
    ) throws(StoreError) {
        try store.admitChange()
        let cipher = try store.keyRing.classCipher(protectionClass)
        let bytes: [UInt8]
        do throws(FormatError) {
            bytes = try DirectoryRecord.make(
                protectionClass, epoch: store.keyRing.epochs.current, isRoot: isRoot, classCipher: cipher,
                vault: store.keyRing.vault
            ).bytes
        } catch {
            throw StoreError(error)
        }
        let directory = try pin.inner([UInt8(ascii: ".")])
        let before = try directory.status()
        let temporary = try temporaryEntry(in: store)
        do throws(StoreError) {
            let owner = geteuid() == 0 ? Owner(uid: before.st_uid, gid: before.st_gid) : nil
            try directory.makeFile(temporary, of: bytes, owner: owner, mode: mode)
            try rename(temporary, from: directory.fd, to: directory.fd, as: recordEntry, flags: 0)
        } catch {
            directory.removeQuietly(temporary)
            throw error
        }
        try retrying { futimens(directory.fd, [before.st_atim, before.st_mtim]) }
        try directory.synchronize(dataOnly: false)
    }
}

extension EncryptedFile {
    /// Writes the first header of a file that has none, durably. Owner, mode and times stay. The header is sealed, at
    /// length 0. It takes one write, and a later open finds the file closed and empty.
    static func makeHeader(
        of pin: Descriptor, class protectionClass: ProtectionClass, in store: Store
    ) throws(StoreError) {
        try store.admitChange()
        let before = try pin.status()
        let cipher = try store.keyRing.classCipher(protectionClass)
        let bytes: [UInt8]
        do throws(FormatError) {
            var (header, keys) = try FileHeader.make(
                protectionClass, epoch: store.keyRing.epochs.current, classCipher: cipher, vault: store.keyRing.vault)
            header.isSealed = true
            bytes = try header.serialized(keys: keys)
        } catch {
            throw StoreError(error)
        }
        let writer = try pin.reopenedForWriting()
        let capability = capability(of: writer)
        try bytes.withBytes { (bytes) throws(StoreError) in try writer.write(bytes, at: 0) }
        try restore(writer, before, capability)
        try writer.synchronize(dataOnly: false)
    }
}
