internal import CLinux
internal import Glibc
internal import LinuxSystem
internal import SystemPackage
internal import VaultFormat

/// Puts the entries of a log in place that a killed daemon or a power cut has left, before anything else uses the store
/// (FileFormat, Log). It can be interrupted at any point: the log stays until everything is in place.
struct LogRecovery {
    static let afterCleanEnd =
        "vaultfs.log has entries after a clean end: somebody has put it there, and it is not applied"
    static let missing =
        "vaultfs.log is missing after an unclean end: what was written shortly before it may be lost; compare with a backup"

    static func damaged(_ entries: UInt64) -> String {
        "vaultfs.log is damaged: \(entries) of its entries cannot be read, and what they changed is lost; run 'vaultfs verify'"
    }

    static let outdated =
        "vaultfs.log is older than the files that it has changes for: somebody has put an old one there, and they are not applied"

    private let store: Store
    private let log: Descriptor
    private var files: [UInt64: LoggedChanges]
    /// Files whose changes are in place, in one of several copies of a file that had several names.
    private var foundCopies: Set<UInt64> = []
    private var writers: [Descriptor] = []
    /// Nanoseconds from one time that the kernel gives to files to the next (clock_getres(2)).
    private static let clockTick: UInt64 = {
        var tick = timespec()
        clock_getres(CLOCK_REALTIME_COARSE, &tick)
        return tick.nanoseconds
    }()
    /// Maximum number of files that are kept open until they are synced together.
    private static let mostWriters = 256
    /// The reason why the changes of some file could not be put in place.
    private var failure: StoreError?
    private var hasOutdatedEntries = false

    private init(_ store: Store, _ contents: LogContents) {
        (self.store, log, files) = (store, contents.log, contents.files)
    }

    /// Puts the changes in place and empties the log. The changes of files that no longer exist are dropped. Notes damage
    /// among the store's faults, and gives such a log another name.
    /// - Parameter setsAside: renames an object that is no log, and a log with changes that cannot be put in place, for a repair.
    /// - Throws: `.damaged` for such an object, and if a file cannot be reached. Nothing is lost then.
    static func run(in store: Store, setsAside: Bool) throws(StoreError) {
        let found: LogContents?
        do throws(StoreError) { found = try LogContents.read(store.root, store.keyRing) } catch {
            // Without a log the vault cannot be written.
            guard case .damaged = error, setsAside else { throw error }
            return try DamagedRoot.setLogAside(in: store.root)
        }
        guard let contents = found else {
            if store.followsUncleanEnd { store.faults.add(.foundLog, missing) }
            return
        }
        if store.followsCleanEnd && !contents.isEmpty {
            store.faults.add(.foundLog, afterCleanEnd)
            return try DamagedRoot.setLogAside(in: store.root)
        }
        var recovery = LogRecovery(store, contents)
        if !contents.files.isEmpty {
            recovery.walk()
            try recovery.synchronize()
            if let failure = recovery.failure {
                guard setsAside else { throw unreachable(failure) }
                return try DamagedRoot.setLogAside(in: store.root)
            }
        }
        if contents.damagedEntries > 0 || recovery.hasOutdatedEntries {
            store.faults.add(.foundLog, contents.damagedEntries > 0 ? damaged(contents.damagedEntries) : outdated)
            return try DamagedRoot.setLogAside(in: store.root)
        }
        guard try contents.log.status().st_size > off_t(LogHeader.areaSize) else { return }
        let writer = try contents.log.reopened(flags: O_RDWR)
        try writer.truncate(to: LogHeader.areaSize)
        try writer.synchronize(dataOnly: false)
    }

    /// Moves logs that were damaged to lost+found. Best effort: there may be no space, or no record of the root.
    static func keepDamagedLogs(in store: Store) {
        guard (try? store.root.statusIfPresent(of: DamagedRoot.logPrefix)) != nil,
            let lostAndFound = try? LostAndFound(in: store)
        else { return }
        try? lostAndFound.keepAside(DamagedRoot.logPrefix)
    }

    /// Finds the files by their ids. One that is found and cannot be changed is a failure, and so is one that may be where the
    /// walk could not look.
    private mutating func walk() {
        var unseen: StoreError?
        do throws(StoreError) { try walk(&unseen) } catch { unseen = error }
        guard hasMissingFiles else { return }
        // A sync client may have renamed the file in a conflict. Other programs' directories may be unreadable.
        var ignored: StoreError?
        try? walk(&ignored, inConflictCopies: true)
        if hasMissingFiles { failure = failure ?? unseen }
    }

    private var hasMissingFiles: Bool { files.keys.contains { !foundCopies.contains($0) } }

    private mutating func walk(_ unseen: inout StoreError?, inConflictCopies: Bool = false) throws(StoreError) {
        var walk = BackingWalk(
            try store.root.inner([UInt8(ascii: ".")]), includesConflictCopies: inConflictCopies)
        while !files.isEmpty, let found = walk.nextEntry(onFailure: { unseen = unseen ?? $2 }) {
            guard found.status.st_mode & S_IFMT == S_IFREG, found.status.st_size >= off_t(FileHeader.size) else {
                continue
            }
            let reader: Descriptor
            let fileID: UInt64
            do throws(StoreError) {
                reader = try open(found)
                fileID = try EncryptedFile.unprovenFileID(of: reader)
            } catch {
                unseen = unseen ?? error
                continue
            }
            guard let changes = files[fileID] else { continue }
            // An older copy of a file that was removed since. A rename sets ctime, from a clock that is a tick late.
            if inConflictCopies, found.status.st_ctim.nanoseconds + Self.clockTick < changes.time { continue }
            do throws(StoreError) {
                let file = try EncryptedFile(reader, in: store)
                if file.mayHaveCopies(found.status) {
                    foundCopies.insert(fileID)
                } else {
                    files[fileID] = nil
                }
                let sealCounter = file.sealCounter
                if changes.outdated(sealCounter) > 0 { hasOutdatedEntries = true }
                if changes.sealCounter < sealCounter { continue }
                writers.append(try file.recover(changes, from: log))
                if writers.count == Self.mostWriters { try synchronize() }
            } catch { failure = failure ?? error }
        }
    }

    private mutating func synchronize() throws(StoreError) {
        try RedoLog.synchronizeFiles(writers, root: store.root, usesSyncfs: !store.isOnFuse)
        writers = []
    }

    private func open(_ found: BackingWalk<Descriptor>.Found) throws(StoreError) -> Descriptor {
        do throws(StoreError) {
            return try Descriptor(at: found.directory.fd, found.entry, flags: O_RDONLY | O_NONBLOCK)
        } catch .system(.permissionDenied) {
            // A program may have written a file that it has closed to its own user since.
            return try Descriptor(at: found.directory.fd, found.entry, flags: linux_O_PATH).reopenedForWriting()
        }
    }

    private static func unreachable(_ error: StoreError) -> StoreError {
        .damaged(
            "vaultfs.log has changes of a file that cannot be reached (\(error.reason)); mount the vault as its owner, or see "
                + "'vaultfs verify --repair'")
    }
}
