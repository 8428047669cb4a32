internal import CLinux
internal import Glibc
package import LinuxSystem
internal import Synchronization
internal import SystemPackage
internal import VaultFormat

/// The reason for a checkpoint (ARCHITECTURE: The life of a chunk).
package enum CheckpointReason {
    /// The schedule: some time after the last entry, or because the log fills up, does not work, or the store has failed.
    case due
    /// An entry has no room in the log.
    case fullLog
    /// A request has met a full disk. The log also gives space back.
    case fullDisk
    /// A change needs the backing file as it will be.
    case change
    /// SEEK_DATA, SEEK_HOLE: only the store knows its holes.
    case holes
    /// Another machine may read the store, a program has set the file's time, or everything is to be in place.
    case sync
    /// Files are sealed only when they are in place.
    case seals
    case repair
    /// Nothing else uses the store. The log's file is also emptied.
    case end
}

/// Checkpoints: they put the log's entries in place and free their space (FileFormat: Log-6).
extension RedoLog {
    /// Number of new logs that one checkpoint begins, at most.
    private static let mostRenewals = 3

    /// Puts every entry in place, durably, and frees its space. Needs no key of a file, because records are copied as they
    /// are. Takes no lock that the caller may hold for a file.
    /// - Throws: the store's error. What is not in place stays in the log.
    package func checkpoint(_ reason: CheckpointReason) throws(StoreError) {
        try placeEverything()
        switch reason {
        case .fullDisk: try shrink()
        case .end: try empty()
        case .due, .fullLog, .change, .holes, .sync, .seals, .repair: break
        }
    }

    private func placeEverything() throws(StoreError) {
        do throws(StoreError) {
            try checkpointing.withLock { (_) throws(StoreError) in
                for _ in 0..<Self.mostRenewals {
                    try renew()
                    if try placeAll() { return }
                }
                throw .system(.ioError)
            }
        } catch {
            faults.add(
                .checkpoint, "changes in vaultfs.log cannot be put in place (\(error.reason))\(StoreFaults.retry)")
            throw error
        }
        faults.clear(.checkpoint)
    }

    /// Returns false if it must be tried again: with the fault noted, if a new log must begin first, and on a full disk if
    /// removed files have been closed meanwhile.
    private func placeAll() throws(StoreError) -> Bool {
        let now = state.access { state in
            state.closed = Set(state.entries.lazy.map(\.entry).filter(\.mayFreeSpace).map(\.fileID))
            return (
                header: state.header, sequence: state.sequence, offset: state.offset, used: state.used,
                entries: state.entries, targets: state.targets, log: state.phase.log?.descriptor,
                needsSalt: state.phase.needsSalt
            )
        }
        guard now.used > 0 || now.needsSalt, let log = now.log else { return true }
        defer { reopen(now.targets.keys) }
        try admit()
        guard try synchronizeEntries(through: now.sequence - 1) else { return false }
        guard let files = try readBack(now.entries, log, now.header) else { return false }
        let (failure, isFreed) = try placeAndSync(files, now.targets, log)
        if let failure {
            if isFreed && failure.error.isNoSpace { return false }
            // The others' entries need not wait, and must not be applied again later.
            if failure.fileIDs.count < files.count {
                try renew { $0.sequence < now.sequence && !failure.fileIDs.contains($0.fileID) }
            }
            throw failure.error
        }
        var header = now.header
        (header.startSequence, header.startOffset) = (now.sequence, now.offset)
        // Nothing was appended since `now` then.
        if now.needsSalt { header.salt = try Self.newSalt() }
        do throws(StoreError) {
            try state.access { (_) throws(StoreError) in try header.write(to: log, keys: keys, cipher) }
            try log.synchronize(dataOnly: true)
        } catch {
            fail(error)
            throw error
        }
        for target in now.targets.values { target.file.dropLogged(through: now.sequence - 1) }
        state.access { state in
            state.header = header
            if case .needsSalt(let log) = state.phase, now.needsSalt { state.phase = .working(log) }
            state.used -= now.used
            // A new array, so that the memory of many entries is freed.
            state.entries = Array(state.entries.dropFirst(now.entries.count))
            for (id, target) in state.targets where target.lastSequence < now.sequence {
                state.targets.removeValue(forKey: id)
            }
            // Begin anew where the store's space is in use already. A reader looks there too.
            if state.used == 0 { state.offset = LogHeader.areaSize }
        }
        return true
    }

    /// Reads every entry again, and returns the changes of each file. Nil, with the fault noted, if one cannot be read.
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
            files[logged.entry.fileID, default: LoggedChanges()].apply(
                logged.entry, at: logged.offset + UInt64(LogEntry.headSize), layout)
        }
        return files
    }

    /// Puts the changes of each file in place, and makes the files durable that have all of theirs.
    /// - Returns: the files that have not, and the first reason. True if files without a name are not kept open any more.
    private func placeAndSync(
        _ files: [UInt64: LoggedChanges], _ targets: [UInt64: Target], _ log: Descriptor
    ) throws(StoreError) -> (failure: (fileIDs: Set<UInt64>, error: StoreError)?, isFreed: Bool) {
        var changed: [Target] = []
        var failed: Set<UInt64> = []
        var failure: StoreError?
        var removed: [UInt64] = []
        // First those that programs wait for.
        for (fileID, changes) in files.sorted(by: { $0.value.mayFreeSpace && !$1.value.mayFreeSpace }) {
            guard let target = targets[fileID] else { continue }
            defer { if changes.mayFreeSpace { reopen(CollectionOfOne(fileID)) } }
            // Its removal is made durable instead: a power cut could bring the name back.
            if usesSyncfs, target.file.abandonIfRemoved() {
                removed.append(fileID)
                faults.clear(.placing(fileID))
                continue
            }
            do throws(StoreError) {
                try target.file.placeChanges(changes, target.writer, from: log)
                changed.append(target)
                faults.clear(.placing(fileID))
            } catch {
                failed.insert(fileID)
                failure = failure ?? error
                faults.add(.placing(fileID), "changes of a file cannot be put in place (\(error.reason))")
            }
        }
        do throws(StoreError) {
            try Self.synchronizeFiles(
                changed.map(\.writer), root: root, usesSyncfs: usesSyncfs, isEverythingNeeded: !removed.isEmpty)
        } catch {
            // New chunks past the files' ends may be lost too, and the kernel returns the error only once.
            for target in changed { target.file.countFailedBackingSync() }
            throw error
        }
        // Others may need their space before the log's start moves.
        state.access { state in
            for fileID in removed where state.targets[fileID]?.lastSequence == targets[fileID]?.lastSequence {
                state.targets.removeValue(forKey: fileID)
            }
        }
        return (failure.map { (failed, $0) }, !removed.isEmpty)
    }

    /// Lets entries of files be appended again, when no space of theirs will be freed.
    private func reopen(_ fileIDs: some Collection<UInt64>) {
        state.update { $0.closed.subtract(fileIDs) }
    }

    /// Makes files durable.
    /// - Parameter isEverythingNeeded: also names.
    static func synchronizeFiles(
        _ files: [Descriptor], root: Descriptor, usesSyncfs: Bool, isEverythingNeeded: Bool = false
    ) throws(StoreError) {
        if isEverythingNeeded {
            try retrying { linux_syncfs(root.fd) }
            return
        }
        if root.synchronizesTogether(files.count, usesSyncfs: usesSyncfs) { return }
        // Times too: an fsync(2) has left them to the log, and its entries go.
        for file in files { try file.synchronize(dataOnly: false) }
    }

    /// True if a checkpoint for a full disk frees space.
    package var canFreeSpace: Bool { state.access { $0.used > 0 || $0.prepared > keptSize } }

    /// Gives most of the log's space back to the store, which has none left.
    private func shrink() throws(StoreError) {
        try state.access { (state) throws(StoreError) in
            let kept = max(keptSize, LogHeader.areaSize + undoSpace(state.growths))
            guard state.used == 0, case .working(let log) = state.phase, state.prepared > kept else { return }
            try log.descriptor.truncate(to: kept)
            state.prepared = kept
        }
    }

    /// The size that the log keeps on a full disk, so that files there can be overwritten.
    private var keptSize: UInt64 { LogHeader.smallestSize(layout) }

    /// Empties the file of the log.
    private func empty() throws(StoreError) {
        try state.access { (state) throws(StoreError) in
            guard let descriptor = state.phase.log?.descriptor, state.used == 0 else { return }
            try descriptor.truncate(to: LogHeader.areaSize)
            state.prepared = 0
            state.phase = .unopened
            (state.sequence, state.offset) = (1, LogHeader.areaSize)
            state.unsynced.forget()
            durable.store(0, ordering: .releasing)
            try descriptor.synchronize(dataOnly: false)
        }
    }
}
