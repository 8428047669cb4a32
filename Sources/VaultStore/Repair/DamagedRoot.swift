internal import CLinux
internal import Glibc
internal import LinuxSystem
internal import SystemPackage
internal import VaultFormat

/// Repairs of the vault's root: a lost record, and an object under the journal's name that is no journal. The damaged
/// objects step aside under another name, until `LostAndFound` keeps them.
enum DamagedRoot {
    /// The prefix of a damaged record's name.
    static let recordPrefix = Array("vaultfs.dir.damaged".utf8)
    /// The prefix of the name of an object that had the journal's.
    static let journalPrefix = Array("vaultfs.journal.damaged".utf8)

    /// Makes a new record for the root, durably.
    static func renewRecord(in store: Store) throws(StoreError) {
        try stepAside(OpenDirectory.recordEntry, as: recordPrefix, in: store.root)
        try OpenDirectory.makeRecord(of: store.root, class: .complete, isRoot: true, mode: 0o600, in: store)
    }

    /// Frees the journal's name, durably: without a journal the vault cannot be written. A journal that has other names too
    /// is copied. Its content is kept, but another writer could change it through those names.
    static func freeJournalName(in root: Descriptor, chunkSize: Int) throws(StoreError) {
        guard let status = try root.statusIfPresent(of: Journal.entry), Journal.fault(of: status) != nil else { return }
        guard status.st_mode & S_IFMT == S_IFREG else {
            try stepAside(Journal.entry, as: journalPrefix, in: root)
            return try root.synchronize(dataOnly: false)
        }
        let file = try Descriptor(at: root.fd, Journal.entry, flags: O_RDONLY | O_NONBLOCK)
        var bytes = [UInt8](repeating: 0, count: JournalSlot.journalSize(chunkSize: chunkSize))
        _ = try bytes.withMutableBytes { (bytes) throws(StoreError) in try file.read(at: 0, into: bytes) }
        try root.install(bytes, as: Journal.entry, by: VaultDirectory.temporaryEntry(), owner: nil, mode: 0o600)
        try root.synchronize(dataOnly: false)
    }

    /// Renames an entry, if it exists, to a name that begins with `prefix`.
    static func stepAside(_ entry: [UInt8], as prefix: [UInt8], in directory: Descriptor) throws(StoreError) {
        var number = 1
        while true {
            do throws(StoreError) {
                let aside = prefix + (number == 1 ? [] : Array("-\(number)".utf8))
                return try directory.rename(entry, as: aside, flags: linux_RENAME_NOREPLACE)
            } catch .system(.noSuchFileOrDirectory) {
                return
            } catch .system(.fileExists) where number < LostAndFound.maximumNames {
                number += 1
            }
        }
    }
}
