internal import CLinux
internal import FileSystem
internal import Glibc
package import LinuxSystem
internal import SystemPackage
internal import VaultCrypto
package import VaultFormat

extension OpenDirectory {
    /// The class whose key wraps the directory secret, and which new entries get.
    package var protectionClass: ProtectionClass { sharedClass.value }

    /// Wraps the directory secret under another class's key: a new record takes the place of the old one, durably. Names,
    /// the root's flag, the record's owner and mode, and the directory's times stay. Nothing is written where the
    /// directory is of that class.
    /// - Throws: `EROFS`; `.damaged` where the record does not authenticate. Where the new record is in place and cannot
    ///   be made durable, or the times not be put back, the directory is of the new class, and this throws.
    package func changeClass(to newClass: ProtectionClass) throws(StoreError) {
        try store.admitChange()
        // Read again: the secret is not kept in memory.
        let (bytes, status) = try Self.readRecord(of: descriptor)
        guard let rewrapped = try rewrapped(bytes, as: newClass) else { return }
        // Before anything changes: a directory that is closed to its owner cannot be synced.
        let directory = try Descriptor(at: descriptor.fd, [UInt8(ascii: ".")], flags: O_RDONLY | O_DIRECTORY)
        let before = try directory.status()
        let temporary = try temporaryEntry()
        do throws(StoreError) {
            try descriptor.makeFile(temporary, of: rewrapped, like: status)
            try sharedClass.update { () throws(StoreError) -> (ProtectionClass, Void) in
                try rename(temporary, in: descriptor.fd, as: Self.recordEntry, flags: 0)
                return (newClass, ())
            }
        } catch {
            removeQuietly(temporary)
            throw error
        }
        try retrying { futimens(directory.fd, [before.st_atim, before.st_mtim]) }
        try directory.synchronize(dataOnly: false)
    }

    /// The record for the new class; nil where it is of that class.
    private func rewrapped(_ bytes: [UInt8], as newClass: ProtectionClass) throws(StoreError) -> [UInt8]? {
        let record: DirectoryRecord
        do { record = try DirectoryRecord.parse(bytes, epochs: store.keyRing.epochs) } catch { throw StoreError(error) }
        if record.protectionClass == newClass { return nil }
        let oldCipher = try store.keyRing.classCipher(record.protectionClass, epoch: record.epoch)
        let newCipher = try store.keyRing.classCipher(newClass, epoch: record.epoch)
        do { return try record.rewrapped(as: newClass, from: oldCipher, to: newCipher) } catch {
            throw StoreError(error)
        }
    }
}
