internal import CLinux
internal import FileSystem
internal import Glibc
internal import LinuxSystem
internal import SystemPackage
internal import VaultFormat

/// A directory's record where it is lost. Of the root a new one takes its place, the damaged one is kept beside it.
enum LostRecord {
    /// What the damaged record's name in the root begins with, until `LostAndFound` has kept what it holds.
    static let prefix = Array("vaultfs.dir.damaged".utf8)

    /// Makes a new record for the root, durably.
    static func renew(in store: Store) throws(StoreError) {
        let root = try Descriptor(at: store.root.fd, [UInt8(ascii: ".")], flags: O_RDONLY | O_DIRECTORY)
        try stepAside(OpenDirectory.recordEntry, as: prefix, in: root)
        try make(isRoot: true, in: root, store)
    }

    /// Makes a record for a directory that has none, durably, and of its owner: it is there whole or not at all.
    static func make(isRoot: Bool = false, in directory: Descriptor, _ store: Store) throws(StoreError) {
        let cipher = try store.keyRing.classCipher(.complete)
        let record: [UInt8]
        do {
            record = try DirectoryRecord.make(
                .complete, epoch: store.keyRing.epochs.current, isRoot: isRoot, classCipher: cipher,
                vault: store.keyRing.vault
            ).bytes
        } catch { throw StoreError(error) }
        let entry = String(decoding: OpenDirectory.recordEntry, as: UTF8.self)
        let temporary = String(decoding: EntryName.temporary(store.temporaryPrefix), as: UTF8.self)
        try directory.replace(entry, with: record, temporary: temporary, mode: 0o600)
        // As `Journal`: what root has made must not keep the vault's owner out.
        let status = try directory.status()
        if geteuid() == 0 {
            try retrying { fchownat(directory.fd, entry, status.st_uid, status.st_gid, AT_SYMLINK_NOFOLLOW) }
        }
    }

    /// Gives an entry's name free: what has it, if anything has, gets a name that begins with `prefix`.
    static func stepAside(_ entry: [UInt8], as prefix: [UInt8], in directory: Descriptor) throws(StoreError) {
        var number = 1
        while true {
            do throws(StoreError) {
                let aside = prefix + (number == 1 ? [] : Array("-\(number)".utf8))
                return try OpenDirectory.rename(
                    entry, from: directory.fd, to: directory.fd, as: aside, flags: linux_RENAME_NOREPLACE)
            } catch .system(.noSuchFileOrDirectory) {
                return
            } catch .system(.fileExists) where number < LostAndFound.mostNames {
                number += 1
            }
        }
    }
}
