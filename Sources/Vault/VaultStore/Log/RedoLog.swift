package import FileSystem
internal import Glibc
package import LinuxSystem
internal import Synchronization
internal import SystemPackage
internal import VaultCrypto
internal import VaultFormat

/// `vaultfs.log`: the changes of existing chunks, cuts, holes and some new chunks, before they are made in place
/// (FileFormat, Log). An entry is appended with one pwrite(2). A checkpoint puts durable entries in place. If the file cannot
/// be trusted any more, a new one begins from what can be read back. Any thread.
///
/// Locks, in this order: `checkpointing`, `syncing`, `state`, `FileLog.content`, `schedule`. `state` is held
/// while an entry is written: after a SIGKILL no entry that was acknowledged may follow one that is incomplete.
package final class RedoLog: Sendable {
    /// A file with entries. It and its descriptor stay open until they are in place.
    struct Target {
        let file: any LoggedFile
        let writer: Descriptor
        var lastSequence: UInt64
    }

    /// An entry that is not in place, and its offset.
    struct LoggedEntry {
        let entry: LogEntry
        let offset: UInt64
    }

    /// The log's file. Others may give its name to another one.
    struct OpenLog {
        let descriptor: Descriptor
        let identity: FileIdentity
    }

    /// ARCHITECTURE (The life of a chunk) shows what leads from one to another.
    enum Phase {
        /// No file is open. The next entry opens or makes one.
        case unopened
        case working(OpenLog)
        /// A part of an entry was written before the store was full. Its number gives a nonce that must not be used again, so a
        /// checkpoint changes the salt before the next entry.
        case needsSalt(OpenLog)
        /// Nothing can be acknowledged before a new log begins, for this reason.
        case failed(OpenLog, StoreError)

        var log: OpenLog? {
            switch self {
            case .unopened: nil
            case .working(let log), .needsSalt(let log), .failed(let log, _): log
            }
        }

        var fault: StoreError? { if case .failed(_, let fault) = self { fault } else { nil } }

        var needsSalt: Bool { if case .needsSalt = self { true } else { false } }
    }

    struct State {
        var phase = Phase.unopened
        var header: LogHeader
        /// Number and offset of the next entry.
        var sequence: UInt64 = 1
        var offset = LogHeader.areaSize
        /// Bytes from the start to `offset`, with what is left free at the end of the log in between.
        var used: UInt64 = 0
        /// The log is written with zeros up to here, so that a sync need not write the store's metadata.
        var prepared: UInt64 = 0
        /// Growths of files that are running. Each may have to be taken back, for which space is kept.
        var growths: UInt64 = 0
        /// In the order of their numbers.
        var entries: [LoggedEntry] = []
        var targets: [UInt64: Target] = [:]
        var unsynced = UnsyncedEntries()
        /// The files of which a checkpoint is about to free space. An entry that was appended meanwhile could lose the space that it
        /// has reserved.
        var closed: Set<UInt64> = []
        /// The files that the last checkpoint could not put in place. They may use half of the log, so that the others
        /// can be written.
        var unplaced: Set<UInt64> = []
    }

    package static let fileName: Component = "vaultfs.log"
    /// Bytes that are prepared at once, and if there is no space for that.
    private static let steps: [UInt64] = [1 << 20, 1 << 17, 0]
    /// Number of entries at which a checkpoint begins, because each takes memory. No more than twice as many are there.
    private static let mostEntries = 1 << 13

    let root: Descriptor
    let keys: ChunkKeys
    let layout: ChunkLayout
    /// Under a pthread mutex: with several writers, Synchronization's hands over at each release (Performance.md).
    let state: Monitor<State>
    // Unsafe: `state` guards it.
    nonisolated(unsafe) let cipher: ChunkCipher
    /// Held by the thread that syncs. The others then find their entries durable. They sleep until then, which
    /// Synchronization's `Mutex` does only after some 25 µs of a core's time.
    let syncing = Monitor<Void>(())
    let checkpointing = Mutex<Void>(())
    let durable = Atomic<UInt64>(0)
    /// Grows, under `state`, each time that a checkpoint lets entries of files be appended again, because it may have freed
    /// space that was reserved before.
    let spaceReleases = Atomic<Int>(0)
    let schedule: DurabilitySchedule
    let faults: StoreFaults
    /// Called before anything is put in place: throws if another process has the vault.
    let admit: @Sendable () throws(StoreError) -> Void
    let usesSyncfs: Bool
    /// rename(2) over the open log may fail.
    let refusesReplacingOpenFiles: Bool
    /// Number of files with entries at which a checkpoint begins, because each keeps its descriptors. No more than twice as
    /// many have entries.
    private let mostTargets = shareOfOpenFiles(atMost: 1024)
    private let lastStatistics: Mutex<LogStatistics>
    /// Number of checkpoints, by the reason's text.
    let checkpoints = Mutex<[String: UInt64]>([:])

    /// - Parameter size: of the file at most. A log that exists keeps its own.
    init(
        root: Descriptor, keys: ChunkKeys, layout: ChunkLayout, size: UInt64, usesSyncfs: Bool,
        refusesReplacingOpenFiles: Bool, schedule: DurabilitySchedule, faults: StoreFaults,
        admit: @escaping @Sendable () throws(StoreError) -> Void
    ) throws(StoreError) {
        self.root = root
        self.keys = keys
        self.layout = layout
        self.admit = admit
        self.usesSyncfs = usesSyncfs
        self.refusesReplacingOpenFiles = refusesReplacingOpenFiles
        self.schedule = schedule
        self.faults = faults
        cipher = try StoreError.ofCrypto(ChunkCipher())
        let size = (try? Self.openToRead(root))?.headers.first?.logSize ?? size
        state = Monitor(State(header: LogHeader(logSize: size)))
        lastStatistics = Mutex(LogStatistics(size: size, used: 0, indexMemory: 0, checkpoints: [:]))
    }

    // MARK: Appending

    /// Appends an entry. It can be lost by a power cut until it is synced, but not by a SIGKILL.
    /// - Parameters:
    ///   - undoes: the entry takes back a change that failed. It may use the space that is kept for this.
    ///   - buffer: room for a head, the entry's body, room for a tag.
    ///   - reserve: makes sure that the change has its space in place. Called again if a checkpoint may have freed that.
    ///   - onAppend: called with the entry, its body's offset and the log, before any other entry is appended.
    /// - Throws: `ENOSPC` with nothing changed; the error for which a new log must begin; the error of `reserve`.
    func append(
        _ entry: LogEntry, undoes: Bool = false, in buffer: UnsafeMutableRawBufferPointer, of file: any LoggedFile,
        _ writer: Descriptor, reserving reserve: () throws(StoreError) -> Void,
        _ onAppend: (LogEntry, UInt64, Descriptor) -> Void
    ) throws(StoreError) {
        // It would end the log for every reader.
        guard entry.isValid(layout) else { throw .system(.ioError) }
        var tries = 0
        while true {
            var lack: StoreError?
            let seen = spaceReleases.load(ordering: .acquiring)
            try reserve()
            do throws(StoreError) {
                let outcome = try withLog { (state) throws(StoreError) in
                    if state.closed.contains(entry.fileID) { return Outcome.closed }
                    if spaceReleases.load(ordering: .relaxed) != seen { return .unreserved }
                    return try append(entry, undoes, in: buffer, of: file, writer, &state, onAppend)
                }
                switch outcome {
                case .appended: return
                case .unreserved: continue
                case .closed:
                    state.wait { $0.closed.contains(entry.fileID) ? nil : () }
                    continue
                case .full: break
                }
            } catch {
                // A checkpoint frees the space that the log has already.
                guard error.isNoSpace, usedSize > 0 else { throw error }
                lack = error
            }
            try makeRoom(for: entry.fileID, &tries, lack: lack)
        }
    }

    private enum Outcome {
        case appended
        /// A checkpoint must come first: the log is full, or has entries of another file with this id.
        case full
        /// A checkpoint is about to free space of the file.
        case closed
        /// A checkpoint may have freed what was reserved.
        case unreserved
    }

    /// Changes the log. If it does not work, waits for a new one to begin.
    /// - Throws: `ENOSPC`; the error for which a new log must begin, because the file may have a part of an entry, or may not
    ///   be readable there.
    private func withLog<Result>(
        _ body: (inout State) throws(StoreError) -> Result
    ) throws(StoreError) -> Result {
        while true {
            // Before the log is tried: the new one may be there by the time that the old one's fault is known here.
            let renewals = schedule.renewals
            var (isOldFault, isNewFault) = (false, false)
            do throws(StoreError) {
                return try state.access { (state) throws(StoreError) in
                    if let fault = state.phase.fault {
                        isOldFault = true
                        throw fault
                    }
                    do throws(StoreError) { return try body(&state) } catch {
                        // At once: another entry must not get the number of one that may be there in part.
                        if !error.isNoSpace { isNewFault = setFault(error, &state) }
                        throw error
                    }
                }
            } catch {
                if isOldFault && schedule.awaitRenewal(after: renewals) { continue }
                if isNewFault { reportFault(error) }
                throw error
            }
        }
    }

    private func append(
        _ given: LogEntry, _ undoes: Bool, in buffer: UnsafeMutableRawBufferPointer, of file: any LoggedFile,
        _ writer: Descriptor, _ state: inout State, _ onAppend: (LogEntry, UInt64, Descriptor) -> Void
    ) throws(StoreError) -> Outcome {
        let log = try open(&state)
        let position = state.header.position(ofSpace: given.space, after: state.offset)
        let growths = undoes ? 0 : state.growths
        let parts: UInt64 = !undoes && !state.unplaced.isEmpty && state.unplaced.contains(given.fileID) ? 2 : 1
        // By its position, and changed below in place: retaining what other threads retain costs 0.1 µs each time.
        let target = state.targets.index(forKey: given.fileID)
        guard !state.phase.needsSalt,
            hasRoom(state, for: position.skipped + given.space, growths: growths, inOneOf: parts),
            target.map({ state.targets.values[$0].file === file }) ?? (state.targets.count < 2 * mostTargets),
            state.entries.count < 2 * Self.mostEntries / Int(parts)
        else { return .full }
        let end = position.offset + given.space + undoSpace(growths)
        try prepare(log.descriptor, upTo: min(state.header.logSize, end), &state)
        var entry = given
        entry.sequence = state.sequence
        entry.durable = min(durable.load(ordering: .acquiring), state.sequence - 1)
        // The coarse clock may be older than the time that the kernel gave the file last.
        entry.time = UInt64(clamping: nanoseconds(of: CLOCK_REALTIME))
        do throws(StoreError) {
            try Self.write(entry, in: buffer, to: log.descriptor, at: position.offset, state.header.salt, cipher, keys)
        } catch {
            // A part of an entry ends the log. The next one is written over it.
            if error.isNoSpace { state.phase = .needsSalt(log) }
            throw error
        }
        state.sequence += 1
        state.offset = position.offset + entry.space
        state.used += position.skipped + entry.space
        state.entries.append(LoggedEntry(entry: entry, offset: position.offset))
        state.unsynced.append(
            entry, UnsafeRawBufferPointer(buffer.slice(LogEntry.headSize..<(LogEntry.headSize + entry.bodySize))),
            durable: durable.load(ordering: .acquiring))
        if let target, state.targets.values[target].writer === writer {
            state.targets.values[target].lastSequence = entry.sequence
        } else {
            state.targets[entry.fileID] = Target(file: file, writer: writer, lastSequence: entry.sequence)
        }
        onAppend(entry, position.offset + UInt64(LogEntry.headSize), log.descriptor)
        schedule.addEntry(
            isHalfFull: state.used > state.header.logSize / 2 || state.targets.count >= mostTargets
                || state.entries.count >= Self.mostEntries)
        return .appended
    }

    /// Writes an entry with one pwrite(2).
    /// - Parameter buffer: has the body at its place. The head and the tags are added.
    static func write(
        _ entry: LogEntry, in buffer: UnsafeMutableRawBufferPointer, to log: Descriptor, at offset: UInt64,
        _ salt: UInt64, _ cipher: ChunkCipher, _ keys: ChunkKeys
    ) throws(StoreError) {
        entry.store(into: buffer.slice(..<LogEntry.fieldsSize))
        let end = LogEntry.headSize + entry.bodySize
        try StoreError.ofCrypto { () throws(CryptoError) in
            try cipher.authenticate(
                UnsafeRawBufferPointer(buffer.slice(..<LogEntry.fieldsSize)), nonce: (entry.headNonce, salt),
                keys: keys, into: buffer.slice(LogEntry.fieldsSize..<LogEntry.headSize))
            guard entry.bodySize > 0 else { return }
            try cipher.authenticate(
                UnsafeRawBufferPointer(buffer.slice(LogEntry.headSize..<end)), nonce: (entry.bodyNonce, salt),
                keys: keys, into: buffer.slice(end..<entry.size))
        }
        try log.write(UnsafeRawBufferPointer(buffer.slice(..<entry.size)), at: offset)
    }

    /// Makes the log's file if there is none, durably.
    func makeFile() throws(StoreError) {
        try state.access { (state) throws(StoreError) in
            if case .unopened = state.phase { _ = try Self.openToWrite(root, size: state.header.logSize) }
        }
    }

    /// The log's file, made if there is none, with a new salt in its header.
    func open(_ state: inout State) throws(StoreError) -> OpenLog {
        if let log = state.phase.log { return log }
        let (descriptor, header) = try Self.openToWrite(root, size: state.header.logSize)
        state.header = try Self.newHeader(size: max(header.logSize, LogHeader.smallestSize(layout)))
        try state.header.write(to: descriptor, keys: keys, cipher)
        // A log with entries and without their header would be damage.
        try descriptor.synchronize(dataOnly: true)
        let log = OpenLog(descriptor: descriptor, identity: FileIdentity(try descriptor.status()))
        state.phase = .working(log)
        return log
    }

    /// Writes zeros to the log up to `end` and somewhat further. Nothing that it writes over is an entry.
    func prepare(_ descriptor: Descriptor, upTo end: UInt64, _ state: inout State) throws(StoreError) {
        guard end > state.prepared else { return }
        let start = max(state.prepared, LogHeader.areaSize)
        var failure = StoreError.system(.noSpace)
        for step in Self.steps {
            let target = min(state.header.logSize, max(end, start + min(step, state.header.logSize / 64)))
            do throws(StoreError) {
                try descriptor.write([UInt8](repeating: 0, count: Int(target - start)), at: start)
                state.prepared = target
                return
            } catch {
                guard error.isNoSpace else { throw error }
                failure = error
                // The rest of the space is for files.
                try descriptor.truncate(to: start)
            }
        }
        throw failure
    }

    // MARK: Status

    /// Number of files with entries that are not in place.
    var files: Int { state.access { $0.targets.count } }

    /// Bytes of entries that are not in place.
    package var usedSize: UInt64 { state.access { $0.used } }

    /// Current values, or if the store does not answer, the last ones.
    package var statistics: LogStatistics {
        let now = state.accessIfAvailable { state in
            (state.header.logSize, state.used, state.entries.capacity, state.targets.values.map(\.file))
        }
        guard let (size, used, entries, files) = now else { return lastStatistics.withLock { $0 } }
        let memory = files.reduce(entries * MemoryLayout<LoggedEntry>.stride) { sum, file in
            sum + file.indexMemory
        }
        let statistics = LogStatistics(
            size: size, used: used, indexMemory: memory, checkpoints: checkpoints.withLock { $0 })
        lastStatistics.withLock { $0 = statistics }
        return statistics
    }

    /// The file with entries that has this id. A second object of it would not know of them.
    func file(_ fileID: UInt64) -> (any LoggedFile)? { state.access { $0.targets[fileID]?.file } }
}

/// Space in the log for the entries that take growths of files back.
extension RedoLog {
    /// The space that is kept for the entries, of one record each, that take growths back. More growths than the smallest
    /// log has room for take it as they come.
    func undoSpace(_ growths: UInt64) -> UInt64 {
        var entry = LogEntry(.records, fileID: 0)
        entry.bodySize = layout.recordSize
        return min(growths, 4) * entry.space
    }

    /// True if so many bytes leave the space that is kept, also if the log begins anew between two of these entries.
    /// - Parameter parts: the log counts as a part of it, one of so many.
    func hasRoom(_ state: borrowing State, for space: UInt64, growths: UInt64, inOneOf parts: UInt64 = 1) -> Bool {
        let kept = growths == 0 ? 0 : undoSpace(growths) + undoSpace(1)
        return state.used + space + kept <= (state.header.logSize - LogHeader.areaSize) / parts
    }

    /// Runs `body`, a growth of a file, while the log keeps space for the entry that takes it back, also on a full disk.
    /// - Parameter fileID: of the file.
    /// - Throws: `ENOSPC` with nothing changed; the error for which a new log must begin; the error of `body`.
    func keepingUndoSpace<Result>(
        of fileID: UInt64, _ body: () throws(StoreError) -> Result
    ) throws(StoreError) -> Result {
        var tries = 0
        while try !withLog({ (state) throws(StoreError) in
            let log = try open(&state)
            guard hasRoom(state, for: 0, growths: state.growths + 1) else { return false }
            let end = state.offset + undoSpace(state.growths + 1)
            try prepare(log.descriptor, upTo: min(state.header.logSize, end), &state)
            state.growths += 1
            return true
        }) {
            try makeRoom(for: fileID, &tries)
        }
        defer { state.access { $0.growths -= 1 } }
        return try body()
    }
}

/// Syncs of the log, and what follows if it does not work.
extension RedoLog {
    /// Makes the entries up to `sequence` durable, with one fdatasync(2) for all threads that wait.
    /// - Throws: the sync's error. The entries then stay doubtful until a new log has them.
    func synchronize(through sequence: UInt64) throws(StoreError) {
        if durable.load(ordering: .acquiring) >= sequence { return }
        // A new log is durable.
        if try !synchronizeEntries(through: sequence) { try renewIfNeeded() }
    }

    /// Returns false, with the fault noted, if the log's name leads elsewhere by now.
    func synchronizeEntries(through sequence: UInt64) throws(StoreError) -> Bool {
        try syncing.access { (_) throws(StoreError) -> Bool in
            if durable.load(ordering: .acquiring) >= sequence { return true }
            let (written, phase, size) = state.access { state in
                (state.sequence - 1, state.phase, state.prepared)
            }
            if let fault = phase.fault { throw fault }
            guard let log = phase.log else { return true }
            do throws(StoreError) { try log.descriptor.synchronize(dataOnly: true) } catch {
                fail(error)
                throw error
            }
            // After the sync: what is acknowledged must be where the next mount looks.
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

    /// The last entry that is durable.
    var durableSequence: UInt64 { durable.load(ordering: .acquiring) }

    /// Makes all entries durable.
    /// - Throws: the error for which a new log must begin.
    package func synchronize() throws(StoreError) {
        try synchronize(through: state.access { $0.sequence - 1 })
    }

    /// Makes sure that nothing is acknowledged until a new log is there, and wakes the thread that makes it.
    func fail(_ error: StoreError) {
        if state.access({ setFault(error, &$0) }) { reportFault(error) }
    }

    /// Returns false if the log did not work before, or has no file: the next append tries to make one.
    private func setFault(_ error: StoreError, _ state: inout State) -> Bool {
        switch state.phase {
        case .unopened, .failed: return false
        case .working(let log), .needsSalt(let log): state.phase = .failed(log, error)
        }
        return true
    }

    private func reportFault(_ error: StoreError) {
        faults.add(
            .log,
            "vaultfs.log does not work (\(error.reason)): overwrites and fsyncs fail until a new one is there"
        )
        // A new log may have begun meanwhile.
        if state.access({ $0.phase.fault == nil }) { faults.clear(.log) }
        schedule.hurry()
    }

    /// Waits for the durability thread to begin a new log, because the store may be back already. Only for a program's request,
    /// without a lock of the log: the thread itself would wait for nothing, once for each file that it syncs, and a lock must
    /// not wait.
    /// - Returns: true if the log did not work, and does now.
    @discardableResult
    package func awaitRenewal() -> Bool {
        let renewals = schedule.renewals
        return state.access { $0.phase.fault != nil } && schedule.awaitRenewal(after: renewals)
    }
}
