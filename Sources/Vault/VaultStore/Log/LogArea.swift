internal import LinuxSystem
internal import SystemPackage
internal import VaultFormat

/// The log's header, the next entry's number and offset, and the file's space. Guarded by `RedoLog.writing`.
struct LogArea: Sendable {
    /// Bytes of the log filled with zeros at once, the next number if the store is full. 0: only what an entry needs.
    private static let steps: [UInt64] = [1 << 20, 1 << 17, 0]

    var header: LogHeader
    /// Number of the next entry.
    private(set) var sequence: UInt64 = 1
    /// Offset of the next entry.
    private(set) var offset = LogHeader.areaSize
    /// Bytes of the entries not yet in place, with the space skipped at the end of the log.
    private(set) var used: UInt64 = 0
    /// Offset up to which the log was filled with zeros, so that a sync need not write the store's metadata.
    private(set) var prepared: UInt64 = 0
    /// Number of running growths of files. The log keeps space to take them back.
    private var growths: UInt64 = 0
    /// Bytes of the entry that takes a growth back, with one record.
    private let undoSize: UInt64

    init(size: UInt64, _ layout: ChunkLayout) {
        header = LogHeader(logSize: size)
        undoSize = LogEntry(.records, fileID: 0, bodySize: layout.recordSize).space
    }

    // MARK: Appending

    /// The last entry's number.
    var lastSequence: UInt64 { sequence - 1 }

    var isHalfFull: Bool { used > header.logSize / 2 }

    /// The space kept for the entries that take growths back. If the smallest log has no room for that many, they share
    /// it.
    var undoSpace: UInt64 { undoSpace(growths) }

    private func undoSpace(_ growths: UInt64) -> UInt64 { min(growths, 4) * undoSize }

    /// The offset of the next entry, which is the beginning if it does not fit before the log's end. Nil if it has no
    /// room beside the kept space.
    /// - Parameters:
    ///   - undoes: true if the entry takes a growth back, so that it may use the kept space.
    ///   - divisor: the entry may use one of so many parts of the log.
    func position(of entry: LogEntry, undoes: Bool, dividedBy divisor: UInt64) -> UInt64? {
        let position = offset + entry.space > header.logSize ? LogHeader.areaSize : offset
        let space = space(of: entry, at: position)
        return hasRoom(for: space, growths: undoes ? 0 : growths, dividedBy: divisor) ? position : nil
    }

    /// Bytes of an entry at this position, with those skipped at the end of the log.
    private func space(of entry: LogEntry, at position: UInt64) -> UInt64 {
        entry.space + (position < offset ? header.logSize - offset : 0)
    }

    /// True if so many bytes leave the kept space, also if the log begins anew between two of the kept entries.
    private func hasRoom(for space: UInt64, growths: UInt64, dividedBy divisor: UInt64 = 1) -> Bool {
        let kept = growths == 0 ? 0 : undoSpace(growths) + undoSize
        return used + space + kept <= (header.logSize - LogHeader.areaSize) / divisor
    }

    /// Counts an entry written at this position.
    mutating func append(_ entry: LogEntry, at position: UInt64) {
        sequence += 1
        used += space(of: entry, at: position)
        offset = position + entry.space
    }

    /// Keeps space to take another growth back. Returns false if there is no room.
    /// - Throws: as `prepare`.
    mutating func beginGrowth(_ log: Descriptor) throws(StoreError) -> Bool {
        guard hasRoom(for: 0, growths: growths + 1) else { return false }
        try prepare(log, upTo: offset + undoSpace(growths + 1))
        growths += 1
        return true
    }

    mutating func endGrowth() { growths -= 1 }

    /// Allocates the store's space: writes zeros to the log, after the entries, up to `wanted` and somewhat further.
    /// - Throws: `ENOSPC`; other errors after which the log cannot be used.
    mutating func prepare(_ log: Descriptor, upTo wanted: UInt64) throws(StoreError) {
        let end = min(header.logSize, wanted)
        guard end > prepared else { return }
        let start = max(prepared, LogHeader.areaSize)
        var failure = StoreError.system(.noSpace)
        for step in Self.steps {
            let target = min(header.logSize, max(end, start + min(step, header.logSize / 64)))
            do throws(StoreError) {
                try log.write([UInt8](repeating: 0, count: Int(target - start)), at: start)
                prepared = target
                return
            } catch {
                guard error.isNoSpace else { throw error }
                failure = error
                // Leave the rest of the space to files.
                try log.truncate(to: start)
            }
        }
        throw failure
    }

    // MARK: Beginning anew

    /// Returns the header with which the log begins after its present entries, all put in place by a checkpoint.
    /// - Parameter salt: of later entries. Nil for the present one.
    func header(afterEntriesWith salt: UInt64?) -> LogHeader {
        var header = header
        (header.startSequence, header.startOffset) = (sequence, offset)
        header.salt = salt ?? header.salt
        return header
    }

    /// Frees the space of the entries before `header`, which is durable.
    /// - Parameter size: of those entries.
    mutating func free(_ size: UInt64, before header: LogHeader) {
        self.header = header
        used -= size
        // Begin anew where the file has space already. A reader looks there too.
        if used == 0 { offset = LogHeader.areaSize }
    }

    /// Goes on in a new log with these entries and no further byte.
    /// - Parameter header: its header, whose first entry is the next one of this log.
    mutating func renew(_ header: LogHeader, _ entries: [LoggedEntry]) {
        self.header = header
        sequence = header.startSequence + UInt64(entries.count)
        (offset, prepared) = (entries.end, entries.end)
        used = entries.end - LogHeader.areaSize
    }

    /// Gives the space beyond `size` back to the store, if the log is without entries.
    mutating func shrink(_ log: Descriptor, to size: UInt64) throws(StoreError) {
        let size = max(size, LogHeader.areaSize + undoSpace)
        guard used == 0, prepared > size else { return }
        try log.truncate(to: size)
        prepared = size
    }

    /// Ends a log without entries: its file keeps only the header. Entries are numbered from 1 again.
    mutating func end(_ log: Descriptor) throws(StoreError) {
        try log.truncate(to: LogHeader.areaSize)
        prepared = 0
        (sequence, offset) = (1, LogHeader.areaSize)
    }
}
