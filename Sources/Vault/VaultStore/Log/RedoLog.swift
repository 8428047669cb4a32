package import FileSystem
internal import Glibc
package import LinuxSystem
internal import Synchronization
internal import SystemPackage
internal import VaultCrypto
internal import VaultFormat

/// `vaultfs.log`: the changes of existing chunks, cuts, holes and some new chunks, before they are made in place
/// (FileFormat, Log). An entry is appended with one pwrite(2). A checkpoint puts durable entries in place. If the file
/// can no longer be trusted, a new one begins with the readable entries. Any thread.
///
/// Locks, in this order: `checkpointing`, `syncing`, `writing`, `FileLog.content`, `schedule`. A thread holds `writing`
/// while it writes an entry, because after a SIGKILL an acknowledged entry must not follow an incomplete one.
package final class RedoLog: Sendable {
    package static let fileName: Component = "vaultfs.log"
    let root: Descriptor
    let keys: ChunkKeys
    let layout: ChunkLayout
    /// A pthread mutex, because with several writers Synchronization's hands over at each release (Performance.md).
    let writing: Monitor<LogWriter>
    /// Held by the syncing thread. The others sleep, and then find their entries durable. With Synchronization's
    /// `Mutex` they would sleep only after some 25 µs of a core's time.
    let syncing = Monitor<Void>(())
    let checkpointing = Mutex<Void>(())
    let durable = Atomic<UInt64>(0)
    /// Grows, under `writing`, each time a checkpoint lets entries of files be appended again, because it may have
    /// freed reserved space.
    let reopenings = Atomic<Int>(0)
    let schedule = DurabilitySchedule()
    let faults: StoreFaults
    /// Checked before anything is put in place. Nil in a read-only store, and in tests.
    let writerLock: WriterLock?
    /// True if syncfs(2) of the store reaches its disk.
    let usesSyncfs: Bool
    /// True if rename(2) over the open log may fail.
    let refusesReplacingOpenFiles: Bool
    private let lastStatistics: Mutex<LogStatistics>
    /// Number of checkpoints, by reason.
    let checkpoints = Mutex<[String: UInt64]>([:])

    init(
        root: Descriptor, keys: ChunkKeys, layout: ChunkLayout, usesSyncfs: Bool, refusesReplacingOpenFiles: Bool,
        faults: StoreFaults, writerLock: WriterLock?
    ) throws(StoreError) {
        self.root = root
        self.keys = keys
        self.layout = layout
        self.writerLock = writerLock
        self.usesSyncfs = usesSyncfs
        self.refusesReplacingOpenFiles = refusesReplacingOpenFiles
        self.faults = faults
        let size = (try? Self.openToRead(root))?.headers.first?.logSize ?? LogHeader.defaultLogSize
        writing = Monitor(try LogWriter(root: root, keys: keys, layout: layout, size: size))
        lastStatistics = Mutex(LogStatistics(size: size, used: 0, indexMemory: 0, checkpoints: [:]))
    }

    // MARK: Appending

    /// Appends an entry. Until it is synced, a power cut can lose it, but a SIGKILL cannot.
    /// - Parameters:
    ///   - undoes: true if the entry takes back a failed change. It may then use the space kept for this, and must fit:
    ///     only a full or broken log may refuse it.
    ///   - buffer: room for a head, the entry's body, room for a tag.
    ///   - reserve: reserves the change's space in place. Called again if a checkpoint may have freed that space.
    ///   - onAppend: called with the entry and the log, before any other entry is appended.
    /// - Throws: `ENOSPC` with nothing changed; the error for which a new log must begin; the error of `reserve`.
    func append(
        _ entry: LogEntry, undoes: Bool = false, in buffer: UnsafeMutableRawBufferPointer, of file: any LoggedFile,
        _ writer: Descriptor, reserving reserve: () throws(StoreError) -> Void,
        _ onAppend: (LoggedEntry, Descriptor) -> Void
    ) throws(StoreError) {
        // Readers stop at the first invalid entry, so this one would hide all that follow.
        guard entry.isValid(layout) else { throw .system(.ioError) }
        try change(for: entry.fileID, reserve) { (log, seen) throws(StoreError) in
            if log.backlog.isClosed(entry.fileID) { return .closed }
            if reopenings.load(ordering: .relaxed) != seen { return .unreserved }
            let isAppended = try log.append(
                entry, undoes: undoes, in: buffer, of: file, writer, durable: durableSequence, onAppend)
            guard isAppended else { return .full(nil) }
            schedule.addEntry(isHalfFull: log.area.isHalfFull || log.backlog.isLarge)
            return .done
        }
    }

    /// The result of an attempt to change the log.
    private enum Outcome {
        case done
        /// A checkpoint must come first: the log is full, or has entries of another file with this id, or the store has
        /// no space for more.
        case full(StoreError?)
        /// A checkpoint is about to free space of the file.
        case closed
        /// A checkpoint may have freed the space that was reserved.
        case unreserved
        /// The log is unchanged.
        case refused(StoreError)
        /// The log had failed before.
        case failed(StoreError)
        /// The log has failed now.
        case broken(StoreError)
    }

    /// Changes the log when it has room. If it does not work, waits for a new one to begin.
    /// - Parameters:
    ///   - fileID: of the changed file.
    ///   - reserve: called before each attempt.
    ///   - attempt: changes the log. Also gets the value of `reopenings` before `reserve`.
    /// - Throws: `ENOSPC` with nothing changed; the error of `reserve`; the error for which a new log must begin,
    ///   because the old one may have a part of an entry, or be unreadable there; after some checkpoints for the entry,
    ///   the error of a file whose entries take the room.
    private func change(
        for fileID: UInt64, _ reserve: () throws(StoreError) -> Void,
        _ attempt: (inout LogWriter, Int) throws(StoreError) -> Outcome
    ) throws(StoreError) {
        var tries = 0
        while true {
            // Count the renewals before the attempt. Otherwise a log renewed in between would be waited for in vain.
            let (renewals, seen) = (schedule.renewals, reopenings.load(ordering: .acquiring))
            try reserve()
            let outcome = writing.access { log -> Outcome in
                if let fault = log.phase.fault { return .failed(fault) }
                do throws(StoreError) { return try attempt(&log, seen) } catch {
                    // A checkpoint can free the space of the log's entries.
                    if error.isNoSpace { return log.area.used > 0 ? .full(error) : .refused(error) }
                    // Fail at once, because another entry must not get the number of one that may be there in part.
                    return log.fail(error) ? .broken(error) : .refused(error)
                }
            }
            switch outcome {
            case .done: return
            case .unreserved: continue
            case .closed: writing.wait { $0.backlog.isClosed(fileID) ? nil : () }
            case .full(let lack):
                let unplaced = try placeFiles(.fullLog)
                guard let first = unplaced.first else { continue }
                tries += 1
                if tries == Self.mostRenewals { throw lack ?? unplaced.errors[fileID] ?? first }
            case .refused(let error): throw error
            case .failed(let fault): guard schedule.awaitRenewal(after: renewals) else { throw fault }
            case .broken(let fault):
                reportFault(fault)
                throw fault
            }
        }
    }

    /// Runs `body`, a growth of a file, while the log keeps space for the entry to take it back, also on a full disk.
    /// - Parameter fileID: of the file.
    /// - Throws: `ENOSPC` with nothing changed; the error for which a new log must begin; the error of `body`.
    func keepingUndoSpace<Result>(
        of fileID: UInt64, _ body: () throws(StoreError) -> Result
    ) throws(StoreError) -> Result {
        try change(
            for: fileID, { () throws(StoreError) in },
            { (log, _) throws(StoreError) in try log.beginGrowth() ? .done : .full(nil) })
        defer { writing.access { $0.endGrowth() } }
        return try body()
    }

    /// Makes the log's file if there is none, durably.
    func makeFile() throws(StoreError) {
        try writing.access { (log) throws(StoreError) in
            if log.phase.log == nil { _ = try Self.openToWrite(root, size: log.area.header.logSize) }
        }
    }

    // MARK: Status

    /// Bytes of entries not yet in place.
    package var usedSize: UInt64 { writing.access { $0.area.used } }

    /// Current values, or the last ones if the store does not answer.
    package var statistics: LogStatistics {
        let now = writing.accessIfAvailable { log in
            (
                log.area.header.logSize, log.area.used, log.backlog.entries.capacity,
                log.backlog.targets.values.map(\.file)
            )
        }
        guard let (size, used, entries, files) = now else { return lastStatistics.withLock { $0 } }
        let memory = files.reduce(entries * MemoryLayout<LoggedEntry>.stride) { sum, file in
            sum + file.indexMemory
        }
        let current = LogStatistics(
            size: size, used: used, indexMemory: memory, checkpoints: checkpoints.withLock { $0 })
        lastStatistics.withLock { $0 = current }
        return current
    }

    /// Returns the open file with this id, if it has entries. A second object of the file would not know of them.
    func file(_ fileID: UInt64) -> (any LoggedFile)? { writing.access { $0.backlog.targets[fileID]?.file } }
}

/// Syncs of the log, and the reaction if it does not work.
extension RedoLog {
    /// Makes the entries up to `sequence` durable, with one fdatasync(2) for all waiting threads.
    /// - Throws: the sync's error. The entries then stay doubtful until a new log has them.
    func synchronize(through sequence: UInt64) throws(StoreError) {
        if durable.load(ordering: .acquiring) >= sequence { return }
        // A new log is durable, so it needs no further sync.
        if try !synchronizeEntries(through: sequence) { try renewIfNeeded() }
    }

    /// Returns false, with the log failed, if its name leads elsewhere by now.
    func synchronizeEntries(through sequence: UInt64) throws(StoreError) -> Bool {
        try syncing.access { (_) throws(StoreError) -> Bool in
            if durable.load(ordering: .acquiring) >= sequence { return true }
            let (written, phase, size) = writing.access { ($0.area.lastSequence, $0.phase, $0.area.prepared) }
            if let fault = phase.fault { throw fault }
            guard let log = phase.log else { return true }
            do throws(StoreError) { try log.descriptor.synchronize(dataOnly: true) } catch {
                fail(error)
                throw error
            }
            // Check after the sync, because acknowledged entries must be where the next mount looks.
            guard hasItsName(log, size: size) else {
                fail(.damaged("vaultfs.log was removed, replaced or cut"))
                return false
            }
            durable.store(written, ordering: .releasing)
            return true
        }
    }

    /// True if the log's name leads to this file, with all of its bytes.
    func hasItsName(_ log: OpenLog, size: UInt64) -> Bool {
        guard let named = try? root.status(of: Self.fileName) else { return false }
        return FileIdentity(named) == log.identity && UInt64(clamping: named.st_size) >= size
    }

    var durableSequence: UInt64 { durable.load(ordering: .acquiring) }

    /// Makes all entries durable.
    /// - Throws: the error for which a new log must begin.
    package func synchronize() throws(StoreError) {
        try synchronize(through: writing.access { $0.area.lastSequence })
    }

    /// Stops all acknowledgements until a new log is there, and wakes the thread that makes it.
    func fail(_ error: StoreError) {
        if writing.access({ $0.fail(error) }) { reportFault(error) }
    }

    private func reportFault(_ error: StoreError) {
        faults.add(
            .log,
            "vaultfs.log does not work (\(error.reason)): overwrites and fsyncs fail until a new one is there"
        )
        // Another thread may have begun a new log meanwhile.
        if writing.access({ $0.phase.fault == nil }) { faults.clear(.log) }
        schedule.hurry()
    }

    /// Waits for the durability thread to begin a new log, because the store may be back already. Only for a program's
    /// request, without a lock of the log. The thread itself would wait in vain, once for each file to sync, and a lock
    /// must not wait.
    /// - Returns: true if the log did not work, and does now.
    @discardableResult
    package func awaitRenewal() -> Bool {
        let renewals = schedule.renewals
        return writing.access { $0.phase.fault != nil } && schedule.awaitRenewal(after: renewals)
    }
}
