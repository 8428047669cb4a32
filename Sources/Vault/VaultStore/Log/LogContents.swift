internal import Glibc
internal import LinuxSystem
internal import VaultFormat

/// The contents of a log: the changes of each file, and the damage (FileFormat: Log-3, Log-10).
struct LogContents: Sendable {
    let log: Descriptor
    /// Nil for a log without entries, or if the header is damaged.
    private(set) var header: LogHeader?
    private(set) var files: [UInt64: LoggedChanges] = [:]
    /// Number of unreadable entries that were on disk.
    private(set) var damagedEntries: UInt64 = 0
    /// True if only the header's copy could be read. The entries are there all the same.
    private(set) var isHeaderDamaged = false

    var isEmpty: Bool { files.isEmpty && damagedEntries == 0 }

    /// Reads a log. Nil if there is none.
    /// - Throws: `.damaged` if the file is no log.
    static func read(_ root: Descriptor, _ keyRing: KeyRing) throws(StoreError) -> LogContents? {
        guard let (log, headers) = try RedoLog.openToRead(root) else { return nil }
        // Do not check the header of a log without entries. After a rekey, it may be of a former epoch.
        let hasEntries = try log.status().st_size > off_t(LogHeader.areaSize)
        if !hasEntries { return LogContents(log: log) }
        let start = try log.read(at: 0, count: LogHeader.size)
        for header in headers {
            // An interrupted rekey may have begun with entries of the previous epoch.
            for keys in keyRing.logKeys {
                let reader = try LogReader(log, header, keys: keys, keyRing.layout)
                guard try reader.isHeaderAuthentic else { continue }
                var contents = try LogContents(reader, keyRing.layout)
                contents.isHeaderDamaged = header.bytes != start
                contents.header = contents.isHeaderDamaged ? nil : header
                return contents
            }
        }
        throw .damaged(RedoLog.text("not a log of this vault, or its header is damaged"))
    }

    private init(log: Descriptor) { self.log = log }

    private init(_ reader: consuming LogReader, _ layout: ChunkLayout) throws(StoreError) {
        log = reader.descriptor
        let (found, gaps) = try Self.entries(&reader)
        // The newest entry known to have been durable.
        let durable = found.reduce(0) { max($0, $1.entry.durable) }
        // The torn tail begins with the first later entry that is torn or missing.
        let torn = found.lazy.filter { !$0.isWhole && $0.entry.sequence > durable }.first?.entry.sequence ?? .max
        let missing = gaps.lazy.compactMap { $0.clamped(to: (durable + 1)..<(.max)).first }.first ?? .max
        let tail = min(torn, missing)
        damagedEntries = gaps.reduce(0) { $0 + UInt64($1.clamped(to: 0..<tail).count) }
        for item in found where item.entry.sequence < tail {
            if !item.isWhole { damagedEntries += 1 }
            files[item.entry.fileID, default: LoggedChanges()].apply(
                LoggedEntry(entry: item.isWhole ? item.entry : item.entry.lost, offset: item.offset), layout)
        }
    }

    /// Returns the entries with a head, in order, and the numbers in between without one.
    private static func entries(
        _ reader: inout LogReader
    ) throws(StoreError) -> (found: [LogReader.Found], gaps: [Range<UInt64>]) {
        var (found, gaps): ([LogReader.Found], [Range<UInt64>]) = ([], [])
        var (sequence, offset) = (reader.header.startSequence, reader.header.startOffset)
        var candidates: ArraySlice<(sequence: UInt64, offset: UInt64)>?
        while true {
            var next = try entry(&reader, sequence, at: offset)
            if next == nil {
                var left = if let candidates { candidates } else { try reader.possibleEntries(from: sequence)[...] }
                let later = try entry(after: sequence, &left, &reader)
                candidates = left
                // Another process may have written the entry since.
                next = try entry(&reader, sequence, at: offset)
                if next == nil, let later {
                    gaps.append(sequence..<later.entry.sequence)
                    next = later
                }
            }
            guard let next else { return (found, gaps) }
            found.append(next)
            (sequence, offset) = (next.entry.sequence + 1, next.offset + next.entry.space)
        }
    }

    /// Returns the entry at this offset, or at the log's beginning if it did not fit before the end.
    private static func entry(
        _ reader: inout LogReader, _ sequence: UInt64, at offset: UInt64
    ) throws(StoreError) -> LogReader.Found? {
        if let found = try reader.entry(at: offset, sequence: sequence) { return found }
        return try reader.entry(at: LogHeader.areaSize, sequence: sequence)
    }

    /// Finds the next entry after a missing one, by its head.
    private static func entry(
        after sequence: UInt64, _ candidates: inout ArraySlice<(sequence: UInt64, offset: UInt64)>,
        _ reader: inout LogReader
    ) throws(StoreError) -> LogReader.Found? {
        while let next = candidates.popFirst() {
            guard next.sequence > sequence else { continue }
            if let found = try reader.entry(at: next.offset, sequence: next.sequence) { return found }
        }
        return nil
    }
}
