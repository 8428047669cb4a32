internal import CLinux
package import FileSystem
package import Glibc
package import LinuxSystem
internal import Synchronization
package import SystemPackage
package import VaultFormat

/// The backing store of one mounted vault, with the rights of those who use it. Any thread.
package final class Store: Sendable {
    /// The parts that the stores for a vault and for the conflict copies in it share.
    private struct Backing: Sendable {
        let root: Descriptor
        let keyRing: KeyRing
        let cache: BlockCache
        let counters: Counters
        let faults: StoreFaults
        let durability: Durability
        let accessTimes: AccessTimes
        let temporaryPrefix: Component
        let lastName: LastName
        let traits: StoreTraits
        let refusesReplacingOpenFiles: Bool
        let isOnFuse: Bool
        let isShared: Bool
        let deviceWithChangeTimes: dev_t?
        let blockSize: UInt64
    }

    /// The right to the vault, with what its holder needs.
    private enum Access: Sendable {
        /// The lock is nil only in tests. The completion is nil unless the last writer's end was an unclean one.
        case writing(WriterLock?, Completion?)
        case reading(Reading)
    }

    private struct Reading: Sendable {
        /// The changes in the log, which are not put in place. Nil for conflict copies: the log has none of theirs.
        var found: FoundChanges?
        /// Nil unless another machine may be writing the vault.
        var watch: EpochWatch?
        var readsCutFiles = false
    }

    private let backing: Backing
    private let access: Access
    package let isReadOnly: Bool
    /// True if another machine may be writing the vault. Data read stays valid for at most a second. Read-only.
    package let followsWriter: Bool
    /// True if a new file may be incomplete, and the end of an unsealed one torn.
    private let isAfterUncleanEnd: Bool
    package let layout: ChunkLayout
    /// Shared by all stores, because some share a block cache.
    private static let nextToken = Atomic<UInt64>(1)

    /// - Parameters:
    ///   - root: the vault's root directory, open for reading. The store duplicates it.
    ///   - cacheSize: bytes for the block cache.
    ///   - readsCutFiles: a file shorter than its sealed length can be opened. The missing chunks do not verify.
    ///   - writerLock: of the locked vault. It is claimed if this store writes.
    ///   - setsLogAside: as in `LogRecovery.run`.
    ///   - traits: called for the traits of a store that writes. If nil, the store is probed.
    /// - Throws: `.damaged`, also for an unfinished step of a rekey; `.unavailable`; `.system` with errno.
    package init(
        root: FileDescriptor, keyRing: KeyRing, cacheSize: Int, isReadOnly: Bool, readsCutFiles: Bool = false,
        followsWriter: Bool = false, accessTimes: AccessTimes = AccessTimes(), writerLock: WriterLock? = nil,
        setsLogAside: Bool = false, traits: (() -> StoreTraits)? = nil
    ) throws(StoreError) {
        let writerLock = isReadOnly ? nil : writerLock
        try writerLock?.claim()
        let root = Descriptor(owning: try retrying { fcntl(root.rawValue, F_DUPFD_CLOEXEC, 3) })
        let traits =
            if isReadOnly { StoreTraits(reading: root) } else if let traits { traits() } else {
                try StoreTraits(probing: root)
            }
        let counters = Counters()
        let faults = StoreFaults()
        let layout = keyRing.layout
        let cache = try BlockCache(capacity: cacheSize, blockSize: layout.chunkSize)
        var space = statvfs()
        try retrying { fstatvfs(root.fd, &space) }
        let temporaryPrefix = try VaultDirectory.randomDigits()
        if isReadOnly {
            try RekeySteps.checkComplete(in: root, keyRing: keyRing)
        } else {
            // Before anything is looked up, made or swept.
            try RekeySteps.finishOrUndo(in: root, keyRing: keyRing, writerLock: writerLock)
        }
        let type = FileSystemType(of: root)
        let isOnFuse = type == .fuse
        let refusesReplacingOpenFiles = traits.refusesReplacingOpenFiles(in: root)
        let log = try RedoLog(
            root: root, keys: keyRing.currentLogKeys, layout: layout, usesSyncfs: !isOnFuse && !isReadOnly,
            refusesReplacingOpenFiles: refusesReplacingOpenFiles, faults: faults, writerLock: writerLock)
        (self.isReadOnly, self.followsWriter, self.layout) = (isReadOnly, followsWriter, layout)
        isAfterUncleanEnd = writerLock == nil && !followsWriter && WriterLockFile.isUnclean(root)
        backing = Backing(
            root: root, keyRing: keyRing, cache: cache, counters: counters, faults: faults,
            durability: Durability(log, isReadOnly: isReadOnly),
            accessTimes: accessTimes, temporaryPrefix: temporaryPrefix, lastName: LastName(), traits: traits,
            refusesReplacingOpenFiles: refusesReplacingOpenFiles, isOnFuse: isOnFuse,
            isShared: writerLock?.isRemote ?? false,
            deviceWithChangeTimes: type.keepsChangeTimes ? try root.status().st_dev : nil,
            blockSize: min(4096, max(512, UInt64(space.f_bsize))))
        if isReadOnly {
            access = .reading(
                Reading(
                    found: FoundChanges(root, keyRing, isFollowing: followsWriter),
                    watch: followsWriter ? EpochWatch(root: root, epochs: keyRing.epochs) : nil,
                    readsCutFiles: readsCutFiles))
            return
        }
        access = .writing(
            writerLock,
            writerLock.flatMap { $0.followsUncleanEnd == true ? Completion($0, counters: counters) : nil })
        try LogRecovery.run(in: self, setsAside: setsLogAside)
        // Ignore an error, because the first entry tries again.
        try? log.makeFile()
        LogRecovery.keepDamagedLogs(in: self)
    }

    /// Makes a read-only store for the conflict copies in another store (FileFormat, Store-40). It has no log, and
    /// reads an unsealed file up to its torn tail.
    package init(forConflictCopiesIn store: Store) {
        (backing, layout, followsWriter) = (store.backing, store.layout, store.followsWriter)
        (isReadOnly, isAfterUncleanEnd) = (true, true)
        access = .reading(Reading(readsCutFiles: store.readsCutFiles))
    }

    // MARK: The backing store

    package var root: Descriptor { backing.root }
    package var keyRing: KeyRing { backing.keyRing }
    package var cache: BlockCache { backing.cache }
    package var counters: Counters { backing.counters }
    package var faults: StoreFaults { backing.faults }
    package var durability: Durability { backing.durability }
    package var accessTimes: AccessTimes { backing.accessTimes }
    package var traits: StoreTraits { backing.traits }
    /// rename(2) over an open file may fail, as on SMB.
    package var refusesReplacingOpenFiles: Bool { backing.refusesReplacingOpenFiles }
    /// syncfs(2) of a FUSE file system may call back into this process, or do nothing.
    package var isOnFuse: Bool { backing.isOnFuse }

    /// True if each change of a backing file with this status gives it a new ctime by this machine's clock. A file
    /// system that counts whole seconds, such as ext4 with small inodes, gives no nanoseconds.
    func keepsChangeTimes(_ status: stat) -> Bool {
        status.st_dev == backing.deviceWithChangeTimes && status.st_ctim.tv_nsec != 0
    }

    /// True if other machines may read the store.
    var isShared: Bool { backing.isShared }
    /// The store's allocation unit, between 512 and 4096 bytes. A file grows inside it without new space.
    var blockSize: UInt64 { backing.blockSize }
    /// The name that was encoded last, in any directory.
    package var lastName: LastName { backing.lastName }
    /// The beginning of this mount's temporary names. Names with another beginning are left over from a crash.
    var temporaryPrefix: Component { backing.temporaryPrefix }

    // MARK: Rights

    private var reading: Reading? { if case .reading(let reading) = access { reading } else { nil } }

    private var writerLock: WriterLock? { if case .writing(let lock, _) = access { lock } else { nil } }

    /// Completes the remains of an unclean end. Nil unless this store writes after one.
    package var completion: Completion? { if case .writing(_, let completion) = access { completion } else { nil } }

    /// Nil unless the store follows a writer.
    package var epochWatch: EpochWatch? { reading?.watch }

    /// A file that is shorter than its sealed length can be opened. The missing chunks do not verify.
    package var readsCutFiles: Bool { reading?.readsCutFiles ?? false }

    /// The changes that a read-only store has found in the log. Nil for a store that writes.
    var foundChanges: FoundChanges? { reading?.found }

    package var log: RedoLog { durability.log }

    /// True if the log cannot have entries.
    var followsCleanEnd: Bool { writerLock.map { $0.followsCleanEnd ?? false } ?? WriterLockFile.isClean(root) }

    /// True if a read-only store has found changes in the log, so that a file's length does not follow from its size.
    package var hasFoundChanges: Bool { foundChanges.map { !$0.current.files.isEmpty } ?? false }

    /// True until the possible remains of an unclean end have been checked.
    package var followsUncleanEnd: Bool { completion?.isActive ?? isAfterUncleanEnd }

    /// The store's faults, one line of text each.
    package var problems: [String] { problems(naming: { _ in nil }) }

    /// Returns the same, with names.
    /// - Parameter name: as for `StoreFaults.texts`.
    package func problems(naming name: (StoreFaults.Part) -> String?) -> [String] {
        [foundChanges?.current.fault, epochWatch?.problem].compactMap(\.self) + faults.texts(naming: name)
    }

    /// Logs the current problems, and later ones when they happen.
    /// - Parameter lose: called with chunks whose acknowledged content is lost.
    package func reportProblems(
        to log: @escaping @Sendable (String) -> Void, lose: @escaping @Sendable (LostChunks) -> Void = { _ in }
    ) {
        for problem in [foundChanges?.current.fault, epochWatch?.problem].compactMap(\.self) { log(problem) }
        faults.onLoss.set(lose)
        faults.report(to: log)
        completion?.onCompleted.set(log)
    }

    /// Must be called before any change.
    /// - Throws: `EROFS`; `EIO` if another process has taken the vault, and after `releaseWriterLock`.
    package func admitChange() throws(StoreError) {
        if isReadOnly { throw .refused(.readOnlyFileSystem) }
        try writerLock?.verify()
    }

    /// Adds the fault that this process has lost the right to write the vault. From now on, all changes are refused.
    package func addWriterLockFault() {
        faults.add(
            .writerLock,
            "vaultfs.lock was removed, or another mount took it: only a new mount can change the vault")
    }

    /// Detects the loss of an idle vault to another process. The body of a thread. Returns after `releaseWriterLock`.
    package func watchWriterLock() { writerLock?.watch { durability.met($0) } }

    /// Ends all changes: `admitChange` throws from now on. The end is an unclean one if written data is missing. A
    /// failure to record a clean end is a fault.
    package func releaseWriterLock() {
        faults.endRetries()
        let isClean = !faults.isDataMissing
        guard let error = writerLock?.release(isClean: isClean), isClean else { return }
        let text = "a clean end cannot be recorded in vaultfs.lock (\(error.reason))"
        // Everything is in place. If the store is full, the next mount only checks all files once more.
        if error.isNoSpace { faults.log("\(text): the next mount checks all files") } else { faults.add(.end, text) }
    }

    /// Returns the status of an entry. On FUSE, asks the store about a file with several names.
    /// - Throws: `.system` with errno.
    package func status(of entry: Component, in directory: Descriptor) throws(StoreError) -> stat {
        isOnFuse ? try directory.currentStatus(of: entry) : try directory.status(of: entry)
    }

    /// Returns the same for an open file.
    /// - Throws: `.system` with errno.
    package func status(of file: Descriptor) throws(StoreError) -> stat {
        isOnFuse ? try file.currentStatus() : try file.status()
    }

    /// Returns a number unique among all open files, past ones included.
    func makeToken() -> UInt64 { Self.nextToken.add(1, ordering: .relaxed).oldValue }
}

/// The kinds of backing objects whose access times a mount's reads preserve (`-o noatime`, `nodiratime`).
package struct AccessTimes: Codable, Sendable, Equatable {
    package var keepsFiles, keepsDirectories: Bool

    package init(keepsFiles: Bool = false, keepsDirectories: Bool = false) {
        self.keepsFiles = keepsFiles
        self.keepsDirectories = keepsDirectories
    }

    /// Prepares a descriptor of a file, before it is read.
    package func prepare(file: Descriptor) { if keepsFiles { Self.keep(file) } }

    /// Prepares a descriptor of a directory, before it is read.
    package func prepare(directory: Descriptor) { if keepsDirectories { Self.keep(directory) } }

    /// Sets O_NOATIME by fcntl(2). An open(2) with it might need a second try, because only the owner and CAP_FOWNER
    /// may set it.
    private static func keep(_ descriptor: Descriptor) {
        let flags = fcntl(descriptor.fd, F_GETFL)
        if flags >= 0 { _ = fcntl(descriptor.fd, F_SETFL, flags | linux_O_NOATIME) }
    }
}

extension Store {
    /// True if only an opened file knows its length and times, because the backing file's attributes do not give them:
    /// the log has changes, records are missing, or a power cut may have torn the file's end. Only for a read-only
    /// store, because one that writes has put the changes in place.
    package var opensForAttributes: Bool { isReadOnly && (hasFoundChanges || readsCutFiles || followsUncleanEnd) }
}
