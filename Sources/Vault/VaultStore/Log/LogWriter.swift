internal import Glibc
internal import LinuxSystem
internal import VaultCrypto
internal import VaultFormat

/// The end of the log, where entries are appended, and the entries not yet in place. Only its mutating functions change
/// the log, and every caller of them has the log's lock, `RedoLog.writing`. `append` and `beginGrowth` are not called
/// in the phase `failed`.
struct LogWriter: ~Copyable {
    /// The log when a checkpoint began.
    struct Snapshot {
        let phase: RedoLog.Phase
        let area: LogArea
        let backlog: LogBacklog
    }

    let root: Descriptor
    let keys: ChunkKeys
    let layout: ChunkLayout
    private let cipher: ChunkCipher
    private(set) var phase = RedoLog.Phase.unopened
    private(set) var area: LogArea
    private(set) var backlog = LogBacklog()
    private(set) var unsynced = UnsyncedEntries()

    /// - Parameter size: bytes of a new log.
    init(root: Descriptor, keys: ChunkKeys, layout: ChunkLayout, size: UInt64) throws(StoreError) {
        self.root = root
        self.keys = keys
        self.layout = layout
        cipher = try StoreError.ofCrypto(ChunkCipher())
        area = LogArea(size: size, layout)
    }

    /// Opens the log's file, made if there is none, with a new salt in its header.
    mutating func open() throws(StoreError) -> RedoLog.OpenLog {
        if let log = phase.log { return log }
        let (descriptor, found) = try RedoLog.openToWrite(root, size: area.header.logSize)
        let header = try RedoLog.newHeader(size: max(found.logSize, LogHeader.smallestSize(layout)))
        area.header = header
        try write(header, to: descriptor)
        // Sync it, because a log with entries but without their header would be damage.
        try descriptor.synchronize(dataOnly: true)
        let log = RedoLog.OpenLog(descriptor: descriptor, identity: FileIdentity(try descriptor.status()))
        phase.open(log)
        return log
    }

    /// Appends an entry with one pwrite(2). Returns false if a checkpoint must come first.
    /// - Parameters:
    ///   - undoes, buffer, onAppend: as for `RedoLog.append`.
    ///   - durable: number of the last durable entry.
    /// - Throws: `ENOSPC`; other errors after which the log may have a part of the entry.
    mutating func append(
        _ given: LogEntry, undoes: Bool, in buffer: UnsafeMutableRawBufferPointer, of file: any LoggedFile,
        _ writer: Descriptor, durable: UInt64, _ onAppend: (LoggedEntry, Descriptor) -> Void
    ) throws(StoreError) -> Bool {
        let log = try open()
        // An entry that takes a growth back must fit, also if its file may use only a part of the log.
        let divisor = undoes ? 1 : backlog.divisor(for: given.fileID)
        guard !phase.needsSalt, backlog.hasRoom(for: given.fileID, of: file, dividedBy: divisor),
            let position = area.position(of: given, undoes: undoes, dividedBy: divisor)
        else { return false }
        try area.prepare(log.descriptor, upTo: position + given.space + (undoes ? 0 : area.undoSpace))
        var entry = given
        entry.sequence = area.sequence
        entry.durable = min(durable, area.lastSequence)
        // Do not use the coarse clock, which may be older than the file's last time from the kernel.
        entry.time = UInt64(clamping: nanoseconds(of: CLOCK_REALTIME))
        do throws(StoreError) {
            try write(entry, in: buffer, to: log.descriptor, at: position, salt: area.header.salt)
        } catch {
            // The log now ends with a part of an entry. The next one is written over it.
            if error.isNoSpace { phase.tearEntry() }
            throw error
        }
        area.append(entry, at: position)
        let logged = LoggedEntry(entry: entry, offset: position)
        backlog.append(logged, of: file, writer)
        unsynced.append(
            entry, UnsafeRawBufferPointer(buffer.slice(LogEntry.headSize..<(LogEntry.headSize + entry.bodySize))),
            durable: durable)
        onAppend(logged, log.descriptor)
        return true
    }

    /// Writes an entry with one pwrite(2).
    /// - Parameter buffer: has the body at its offset. The head and the tags are added.
    func write(
        _ entry: LogEntry, in buffer: UnsafeMutableRawBufferPointer, to log: Descriptor, at offset: UInt64, salt: UInt64
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

    /// Writes the 64 bytes of a header, with a new tag, and their copy. The caller syncs. `log` may be a new one,
    /// without its name yet.
    func write(_ header: LogHeader, to log: Descriptor) throws(StoreError) {
        let bytes = Array(header.bytes[..<LogHeader.tagOffset]) + (try header.tag(keys: keys, cipher))
        let gap = [UInt8](repeating: 0, count: LogHeader.copyOffset - LogHeader.size)
        try log.write(bytes + gap + bytes, at: 0)
    }

    /// Keeps space for the entry that takes a growth back. Returns false if a checkpoint must come first.
    /// - Throws: as `append`.
    mutating func beginGrowth() throws(StoreError) -> Bool { try area.beginGrowth(try open().descriptor) }

    mutating func endGrowth() { area.endGrowth() }

    /// Stops all acknowledgements until a new log is there. Returns false if the log did not work before.
    mutating func fail(_ error: StoreError) -> Bool { phase.fail(error) }

    // MARK: Checkpoints

    mutating func beginCheckpoint() -> Snapshot {
        backlog.close()
        return Snapshot(phase: phase, area: area, backlog: backlog)
    }

    /// Frees the space of a snapshot's entries, which are all in place.
    /// - Parameter header: durable, with a new salt if the snapshot needed one.
    mutating func finishCheckpoint(_ former: Snapshot, _ header: LogHeader) {
        if former.phase.needsSalt && phase.needsSalt { phase.useNewSalt() }
        area.free(former.area.used, before: header)
        backlog.drop(former.backlog, before: former.area.sequence)
    }

    /// Records the files that a checkpoint could not put in place.
    mutating func leave(_ unplaced: Set<UInt64>) { backlog.leave(unplaced) }

    /// Lets entries of files be appended again.
    mutating func reopen(_ fileIDs: some Sequence<UInt64>) { backlog.reopen(fileIDs) }

    mutating func dropRemoved(_ fileIDs: [UInt64], since former: LogBacklog) {
        backlog.dropRemoved(fileIDs, since: former)
    }

    /// Gives the space of a log without entries back to the store.
    /// - Parameter size: bytes that the log keeps.
    mutating func shrink(to size: UInt64) throws(StoreError) {
        guard case .working(let log) = phase else { return }
        try area.shrink(log.descriptor, to: size)
    }

    /// Closes a log without entries, whose file keeps only the header. Nil if it has entries or lacks a file.
    mutating func end() throws(StoreError) -> Descriptor? {
        guard let log = phase.log?.descriptor, area.used == 0 else { return nil }
        try area.end(log)
        phase.end()
        unsynced.forget()
        return log
    }

    /// Goes on in a new log.
    /// - Parameters:
    ///   - log: has the new log's name by now.
    ///   - entries: all that it has, in the order of their numbers.
    mutating func renew(_ log: RedoLog.OpenLog, _ area: LogArea, _ entries: [LoggedEntry]) {
        phase.renew(log)
        self.area = area
        backlog.replace(by: entries)
        // The new log is synced. If its name cannot be made durable, the next one is made from it.
        unsynced.forget()
    }
}
