internal import CLinux
internal import Glibc
package import LinuxSystem
internal import Synchronization
internal import SystemPackage
internal import VaultFormat

/// The reason for a checkpoint (ARCHITECTURE: The life of a chunk).
package enum CheckpointReason {
    /// The schedule: entries are some time old, the log fills up or does not work, or the store has failed.
    case due
    /// An entry has no room in the log.
    case fullLog
    /// A request has met a full disk. The log also gives space back.
    case fullDisk
    /// A change needs the backing file with this id to have all changes.
    case change(UInt64)
    /// SEEK_DATA, SEEK_HOLE: only the store knows the holes of this file.
    case holes(UInt64)
    /// fsync(2) of this file: another machine may read the store, or a program has set the file's time.
    case fsync(UInt64)
    /// Everything is to be in place.
    case sync
    /// Files are sealed only when they are in place.
    case seals
    /// The store has no other user. The log's file is also emptied.
    case end

    /// The name in `status`.
    var text: String {
        switch self {
        case .due: "due"
        case .fullLog: "full-log"
        case .fullDisk: "full-disk"
        case .change: "change"
        case .holes: "holes"
        case .fsync: "fsync"
        case .sync: "sync"
        case .seals: "seals"
        case .end: "end"
        }
    }
}

/// The files whose changes a checkpoint could not put in place. The log keeps only their entries, and newer ones.
struct UnplacedFiles {
    private(set) var errors: [UInt64: StoreError] = [:]
    /// The first error. Nil if everything is in place.
    private(set) var first: StoreError?

    var isEmpty: Bool { errors.isEmpty }

    mutating func add(_ fileID: UInt64, _ error: StoreError) {
        first = first ?? error
        errors[fileID] = error
    }

    /// Returns the error that concerns the thread of a checkpoint. It need not know of other files' errors.
    func error(for reason: CheckpointReason) -> StoreError? {
        switch reason {
        case .change(let fileID), .holes(let fileID), .fsync(let fileID): errors[fileID]
        // Any file's space will do.
        case .fullLog, .fullDisk: nil
        case .due, .sync, .seals, .end: first
        }
    }
}

/// Checkpoints: they put the log's entries in place and free their space (FileFormat: Log-6).
extension RedoLog {
    /// Maximum number of new logs in one checkpoint, and of checkpoints for one entry while some file's entries stay.
    static let mostRenewals = 3

    /// Puts every entry in place, durably, and frees its space. Needs no key of a file, because it copies records as
    /// they are. Takes no lock that the caller may hold for a file.
    /// - Throws: the store's error, and that of a file concerned by the reason. What is not in place stays in the log.
    package func checkpoint(_ reason: CheckpointReason) throws(StoreError) {
        if let error = try placeFiles(reason).error(for: reason) { throw error }
    }

    /// Does the same, and returns the files not in place.
    /// - Throws: the store's error, but not that of a single file.
    func placeFiles(_ reason: CheckpointReason) throws(StoreError) -> UnplacedFiles {
        checkpoints.withLock { $0[reason.text, default: 0] += 1 }
        let unplaced: UnplacedFiles
        do throws(StoreError) {
            unplaced = try checkpointing.withLock { (_) throws(StoreError) in
                try schedule.activity.during { () throws(StoreError) in
                    for _ in 0..<Self.mostRenewals {
                        try renew()
                        if let unplaced = try placeAll() { return unplaced }
                    }
                    throw .system(.ioError)
                }
            }
        } catch {
            faults.add(
                .checkpoint, "changes in vaultfs.log cannot be put in place (\(error.reason))\(StoreFaults.retry)")
            throw error
        }
        faults.clear(.checkpoint)
        switch reason {
        // A full store gets most of the log's space back. Files can still be overwritten by the rest.
        case .fullDisk:
            try writing.access { (log) throws(StoreError) in try log.shrink(to: LogHeader.smallestSize(layout)) }
        case .end:
            try writing.access { (log) throws(StoreError) in
                guard let descriptor = try log.end() else { return }
                durable.store(0, ordering: .releasing)
                try descriptor.synchronize(dataOnly: false)
            }
        case .due, .fullLog, .change, .holes, .fsync, .sync, .seals: break
        }
        return unplaced
    }

    /// Puts everything in place once. Returns nil to be called again: with the log failed, if a new one must begin
    /// first, and on a full disk after it has closed removed files.
    private func placeAll() throws(StoreError) -> UnplacedFiles? {
        let now = writing.access { $0.beginCheckpoint() }
        guard now.area.used > 0 || now.phase.needsSalt, let log = now.phase.log?.descriptor else {
            return UnplacedFiles()
        }
        defer { reopen(now.backlog.targets.keys) }
        try writerLock?.verify()
        guard try synchronizeEntries(through: now.area.lastSequence) else { return nil }
        guard let files = try readBack(now.backlog.entries, log, now.area.header) else { return nil }
        let (unplaced, isFreed) = placeAndSync(files, now.backlog, log)
        if let first = unplaced.first {
            if isFreed && first.isNoSpace { return nil }
            writing.access { $0.leave(Set(unplaced.errors.keys)) }
            // Begin a new log, because the entries in place need not wait, and must not be applied again later. Other
            // files then need not wait for a new salt either.
            if unplaced.errors.count < files.count || now.phase.needsSalt {
                try renew { $0.sequence < now.area.sequence && unplaced.errors[$0.fileID] == nil }
            }
            return unplaced
        }
        // A log that needs a salt has got no entry since `now`.
        let header = now.area.header(afterEntriesWith: now.phase.needsSalt ? try Self.newSalt() : nil)
        do throws(StoreError) {
            try writing.access { (writer) throws(StoreError) in try writer.write(header, to: log) }
            try log.synchronize(dataOnly: true)
        } catch {
            fail(error)
            throw error
        }
        for target in now.backlog.targets.values { target.file.drop(through: now.area.lastSequence) }
        writing.access { $0.finishCheckpoint(now, header) }
        return UnplacedFiles()
    }

    /// Reads every entry again, and returns the changes of each file. Nil, with the log failed, if one cannot be read.
    private func readBack(
        _ entries: [LoggedEntry], _ log: Descriptor, _ header: LogHeader
    ) throws(StoreError) -> [UInt64: LoggedChanges]? {
        var reader = try LogReader(log, header, keys: keys, layout)
        var files: [UInt64: LoggedChanges] = [:]
        for logged in entries {
            let isThere: Bool
            do throws(StoreError) { isThere = try reader.verify(logged.entry, at: logged.offset) } catch {
                fail(error)
                return nil
            }
            guard isThere else {
                fail(.damaged("an entry cannot be read back"))
                return nil
            }
            files[logged.entry.fileID, default: LoggedChanges()].apply(logged, layout)
        }
        return files
    }

    /// Puts the changes of each file in place, and makes the complete files durable.
    /// - Returns: the files that are incomplete or not durable. True if some removed files are no longer kept open.
    private func placeAndSync(
        _ files: [UInt64: LoggedChanges], _ backlog: LogBacklog, _ log: Descriptor
    ) -> (unplaced: UnplacedFiles, isFreed: Bool) {
        var changed: [(fileID: UInt64, target: LogBacklog.Target)] = []
        var unplaced = UnplacedFiles()
        var removed: [UInt64] = []
        // First the files for which programs wait.
        for (fileID, changes) in files.sorted(by: { $0.value.mayFreeSpace && !$1.value.mayFreeSpace }) {
            guard let target = backlog.targets[fileID] else { continue }
            defer { if changes.mayFreeSpace { reopen(CollectionOfOne(fileID)) } }
            // Make its removal durable instead, because a power cut could bring the name back.
            if usesSyncfs, target.file.abandonIfRemoved() {
                removed.append(fileID)
                continue
            }
            schedule.activity.step()
            do throws(StoreError) {
                try target.file.putInPlace(changes, target.writer, from: log)
                changed.append((fileID, target))
            } catch {
                // A removed file, which nobody has open, does not need its changes.
                if !usesSyncfs, target.file.abandonIfRemoved() { continue }
                unplaced.add(fileID, error)
            }
        }
        var isDurable = false
        if !removed.isEmpty {
            do throws(StoreError) {
                try retrying { linux_syncfs(root.fd) }
                isDurable = true
            } catch {
                for fileID in removed { unplaced.add(fileID, error) }
                removed = []
            }
        }
        if !isDurable {
            let errors = Self.synchronizeFiles(changed.map(\.target.writer), root: root, usesSyncfs: usesSyncfs) {
                schedule.activity.step()
            }
            for (index, error) in errors {
                unplaced.add(changed[index].fileID, error)
                // New chunks past the file's end may be lost too, and the kernel returns the error only once.
                changed[index].target.file.countFailedSync()
            }
        }
        for fileID in files.keys {
            if let error = unplaced.errors[fileID] {
                faults.add(
                    .placing(fileID), "changes of a file cannot be put in place (\(error.reason))\(StoreFaults.retry)")
            } else {
                faults.clear(.placing(fileID))
            }
        }
        // Drop removed files now, because others may need their space before the log's start moves.
        writing.access { $0.dropRemoved(removed, since: backlog) }
        return (unplaced, !removed.isEmpty)
    }

    /// Lets entries of these files be appended again, because a checkpoint will not free their space any more.
    private func reopen(_ fileIDs: some Collection<UInt64>) {
        writing.update { log in
            log.reopen(fileIDs)
            reopenings.add(1, ordering: .releasing)
        }
    }

    /// Makes files durable.
    /// - Parameter onStep: called before each sync.
    /// - Returns: the errors of files that are not durable, with their positions in `files`.
    static func synchronizeFiles(
        _ files: [Descriptor], root: Descriptor, usesSyncfs: Bool, onStep: () -> Void = {}
    ) -> [(index: Int, error: StoreError)] {
        onStep()
        if root.synchronizesTogether(files.count, usesSyncfs: usesSyncfs) { return [] }
        var errors: [(index: Int, error: StoreError)] = []
        for (index, file) in files.enumerated() {
            onStep()
            // Sync times too, because an fsync(2) has left them to the log, whose entries will go.
            do throws(StoreError) { try file.synchronizeIfNamed(dataOnly: false) } catch {
                errors.append((index, error))
            }
        }
        return errors
    }
}
