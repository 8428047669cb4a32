internal import CLinux
package import FileSystem
internal import Glibc
package import LinuxSystem
internal import Synchronization
package import SystemPackage
internal import VaultCrypto
package import VaultFormat

/// The backing store of one mounted vault: its root, its keys, and what all of its files share. Any thread.
package final class Store: Sendable {
    package let root: Descriptor
    package let keyRing: KeyRing
    package let layout: ChunkLayout
    package let cache: BlockCache
    package let counters = Counters()
    package let isReadOnly: Bool
    /// Another machine may be writing: what is read of the store is believed for a second at most. Read-only.
    package let followsWriter: Bool
    /// A file shorter than it was sealed can be opened all the same: what is missing does not verify.
    package let readsCutFiles: Bool
    package let accessTimes: AccessTimes
    /// Of a store that follows a writer.
    package let epochWatch: EpochWatch?
    let journal: Journal
    private let writerLock: WriterLock?
    /// Completes the remains of an unclean end. Nil unless this store writes after one.
    package let completion: Completion?
    package let sealer: HeaderSealer
    /// The store's allocation unit in bytes: within it, a file grows without needing space.
    let blockSize: UInt64
    /// syncfs(2) of a FUSE file system may come back here or do nothing.
    let isOnFuse: Bool
    /// The first characters of this mount's temporary names; another's are left over from a crash.
    let temporaryPrefix: String
    private let nextToken = Atomic<UInt64>(1)

    /// - Parameters:
    ///   - root: the vault's root directory, opened for reading; this store takes a descriptor of its own.
    ///   - cacheSize: bytes for the block cache.
    ///   - hold: of the vault that was locked: it is claimed, if this store writes.
    package init(
        root: FileDescriptor, keyRing: KeyRing, cacheSize: Int, isReadOnly: Bool, readsCutFiles: Bool = false,
        followsWriter: Bool = false, accessTimes: AccessTimes = AccessTimes(), writerLock: WriterLock? = nil
    ) throws(StoreError) {
        self.writerLock = isReadOnly ? nil : writerLock
        try self.writerLock?.claim()
        completion = self.writerLock.flatMap { [counters] lock in
            lock.followsUncleanEnd == true ? Completion(lock, counters: counters) : nil
        }
        let copy = try retrying { fcntl(root.rawValue, F_DUPFD_CLOEXEC, 3) }
        self.root = Descriptor(owning: copy)
        self.keyRing = keyRing
        self.isReadOnly = isReadOnly
        self.readsCutFiles = readsCutFiles
        self.followsWriter = followsWriter
        self.accessTimes = accessTimes
        epochWatch = followsWriter ? EpochWatch(root: self.root, epochs: keyRing.epochs) : nil
        layout = keyRing.layout
        cache = try BlockCache(capacity: cacheSize, blockSize: layout.chunkSize)
        var space = statvfs()
        try retrying { fstatvfs(copy, &space) }
        blockSize = min(4096, max(512, UInt64(space.f_bsize)))
        isOnFuse = linux_filesystem_type(copy) == 0x6573_5546  // FUSE_SUPER_MAGIC, statfs(2)
        do { temporaryPrefix = String(try SecureRandom.integer(), radix: 16) } catch { throw StoreError(error) }
        if isReadOnly {
            if try RekeyIntentFile.isThere(in: self.root),
                let notes = try RekeyNotes(root: self.root, keyRing: keyRing, admit: {}),
                let intents = RekeyIntentFile(notes: notes)
            {
                throw intents.refusal()
            }
        } else {
            // Before anything is looked up, made or swept.
            try RekeyIntentFile.settle(root: self.root, keyRing: keyRing, hold: self.writerLock)
        }
        journal =
            followsWriter
            ? Journal(emptyWithChunkSize: layout.chunkSize)
            : try Journal(root: copy, chunkSize: layout.chunkSize, isReadOnly: isReadOnly)
        sealer = HeaderSealer(root: self.root, usesSyncfs: !isOnFuse)
    }

    /// True while the journal holds records that may be the good copy (after a crash).
    package var hasJournaledRecords: Bool { journal.isHoldingRecords }

    /// What does not work of the store, for people, a line each.
    package var problems: [String] { [journal.problem, epochWatch?.problem].compactMap(\.self) }

    /// Tells `log` what does not work, and what will not work later.
    package func reportProblems(to log: @escaping @Sendable (String) -> Void) {
        for problem in problems { log(problem) }
        journal.onExhausted.withLock { $0 = log }
        completion?.onCompleted.withLock { $0 = log }
    }

    /// Frees the journal's slots of a file whose last name is gone. Not while it is open: its slots may be its records.
    package func forgetSlots(of descriptor: Descriptor) {
        guard let status = try? descriptor.status(), status.st_nlink == 0,
            let fileID = try? EncryptedFile.readHeader(of: descriptor, keyRing: keyRing).0.fileID
        else { return }
        forgetSlots(of: fileID)
    }

    /// Frees the journal's slots of a file that is gone. Not once another has the vault: they are its slots then.
    func forgetSlots(of fileID: UInt64) {
        guard journal.isHoldingRecords, (try? admitChange()) != nil else { return }
        journal.forget(file: fileID)
    }

    /// Before anything is changed.
    /// - Throws: `EROFS`; `EIO` where another has taken the vault over, and after `releaseWriterLock`.
    package func admitChange() throws(StoreError) {
        if isReadOnly { throw .system(.readOnlyFileSystem) }
        try writerLock?.verify()
    }

    /// Nothing will be changed any more.
    package func releaseWriterLock() { writerLock?.release() }

    /// The journal with what it holds: of another machine's writer, at this moment.
    func journalForReading() throws(StoreError) -> Journal {
        followsWriter ? try Journal(root: root.fd, chunkSize: layout.chunkSize, isReadOnly: true) : journal
    }

    /// A number for an open file that no other has had.
    func makeToken() -> UInt64 {
        nextToken.add(1, ordering: .relaxed).oldValue
    }
}
