internal import CLinux
internal import FileSystem
internal import Glibc
internal import LinuxSystem
internal import SystemPackage
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
        var reader = DirectoryReader(
            try Descriptor(at: directory.fd, [UInt8(ascii: ".")], flags: O_RDONLY | O_DIRECTORY))
        while let found = try reader.next() {
            if found.name != recordEntry && EntryName.kind(of: found.name) != .temporary { return false }
        }
        return true
    }

    /// Makes the record of a directory that has none, with a new secret, durably. Owner, mode and times stay.
    static func makeRecord(
        of pin: Descriptor, class protectionClass: ProtectionClass, in store: Store
    ) throws(StoreError) {
        try store.admitChange()
        let cipher = try store.keyRing.classCipher(protectionClass)
        let bytes: [UInt8]
        do throws(FormatError) {
            bytes = try DirectoryRecord.make(
                protectionClass, epoch: store.keyRing.epochs.current, isRoot: false, classCipher: cipher,
                vault: store.keyRing.vault
            ).bytes
        } catch {
            throw StoreError(error)
        }
        let directory = try Descriptor(at: pin.fd, [UInt8(ascii: ".")], flags: O_RDONLY | O_DIRECTORY)
        let before = try directory.status()
        let temporary = try temporaryEntry(in: store)
        do throws(StoreError) {
            // The record gets the owner of its directory. Only root can make it for another user.
            let owner = geteuid() == 0 ? Owner(uid: before.st_uid, gid: before.st_gid) : nil
            try directory.makeFile(temporary, of: bytes, owner: owner, mode: 0o644)
            try rename(temporary, from: directory.fd, to: directory.fd, as: recordEntry, flags: 0)
        } catch {
            _ = withCString(temporary) { unlinkat(directory.fd, $0, 0) }
            throw error
        }
        try retrying { futimens(directory.fd, [before.st_atim, before.st_mtim]) }
        try directory.synchronize(dataOnly: false)
    }
}
