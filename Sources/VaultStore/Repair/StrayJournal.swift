internal import CLinux
internal import FileSystem
internal import Glibc
internal import LinuxSystem
internal import SystemPackage
internal import VaultCrypto
internal import VaultFormat

/// What has the journal's name and is no file of its own: with it the vault cannot be written.
enum StrayJournal {
    /// What its name in the root begins with, until `LostAndFound` has it.
    static let prefix = Array("vaultfs.journal.damaged".utf8)

    /// Gives the name free, durably. A file that has other names too is copied: what it holds is the journal's, but
    /// whoever wrote it would write another file.
    static func stepAside(in root: Descriptor, chunkSize: Int) throws(StoreError) {
        let status: stat
        do throws(StoreError) { status = try root.status(of: Journal.entry) } catch .system(.noSuchFileOrDirectory) {
            return
        }
        guard Journal.fault(of: status) != nil else { return }
        guard status.st_mode & S_IFMT == S_IFREG else {
            try LostRecord.stepAside(Journal.entry, as: prefix, in: root)
            return try root.synchronize(dataOnly: false)
        }
        let file = try Descriptor(at: root.fd, Journal.entry, flags: O_RDONLY | O_NONBLOCK)
        var bytes = [UInt8](repeating: 0, count: JournalSlot.journalSize(chunkSize: chunkSize))
        _ = try bytes.withMutableBytes { (bytes) throws(StoreError) in try file.read(at: 0, into: bytes) }
        try root.replace(
            String(decoding: Journal.entry, as: UTF8.self), with: bytes, temporary: try VaultDirectory.temporaryEntry(),
            mode: 0o600)
    }
}
