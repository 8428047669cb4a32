internal import Glibc
internal import LinuxSystem
internal import VaultFormat

/// All that a log has: the changes of each file, and the damage (FileFormat: Log-3, Log-10).
struct LogContents: Sendable {
    let log: Descriptor
    private(set) var files: [UInt64: LoggedChanges] = [:]
    /// Number of entries that were on disk, and cannot be read any more.
    private(set) var damagedEntries: UInt64 = 0

    /// Maximum number of bytes that are authenticated in a search, in units of the log's size. Entries that overlap are
    /// forged.
    private static let searchLimit: UInt64 = 4

    private struct Found {
        let entry: LogEntry
        let offset: UInt64
    }

    /// Numbers without an entry.
    private struct Gap {
        let numbers: Range<UInt64>
        /// The heads of the entries that are missing, if each is where the one before ends, and the entry after the gap too.
        /// Else none. Not authenticated.
        let heads: [LogEntry]

        /// The first number after `sequence`. Nil if there is none.
        func firstMissing(after sequence: UInt64) -> UInt64? {
            let first = max(numbers.lowerBound, sequence + 1)
            return numbers.contains(first) ? first : nil
        }

        /// The part before a number. Nil if that is empty.
        func before(_ sequence: UInt64) -> Gap? {
            let part = numbers.clamped(to: 0..<sequence)
            return part.isEmpty ? nil : Gap(numbers: part, heads: Array(heads.prefix(part.count)))
        }
    }

    var isEmpty: Bool { files.isEmpty && damagedEntries == 0 }

    /// Reads a log. Nil if there is none.
    /// - Throws: `.damaged` if the file is no log.
    static func read(_ root: Descriptor, _ keyRing: KeyRing) throws(StoreError) -> LogContents? {
        guard let (log, header) = try RedoLog.openToRead(root) else { return nil }
        // Nothing is there. After a rekey, the header of such a log may be of a former epoch.
        let hasEntries = try log.status().st_size > off_t(LogHeader.areaSize)
        if header.salt == 0 || !hasEntries { return LogContents(log: log) }
        // A rekey that was interrupted may have begun with entries of the previous epoch.
        for keys in keyRing.logKeys {
            let reader = try LogReader(log, header, keys: keys, keyRing.layout)
            if try reader.isHeaderAuthentic { return try LogContents(reader, keyRing.layout) }
        }
        throw .damaged(RedoLog.text("not a log of this vault, or its header is damaged"))
    }

    private init(log: Descriptor) { self.log = log }

    private init(_ reader: consuming LogReader, _ layout: ChunkLayout) throws(StoreError) {
        log = reader.descriptor
        var (found, gaps) = try Self.entries(&reader)
        // The newest that an entry knows to have been durable.
        let durable = found.reduce(0) { max($0, $1.entry.durable) }
        // The torn tail begins with the first that is missing and was not.
        let tail = gaps.lazy.compactMap { $0.firstMissing(after: durable) }.first ?? .max
        found.removeAll { $0.entry.sequence >= tail }
        gaps = gaps.compactMap { $0.before(tail) }
        var next = gaps.makeIterator()
        var gap = next.next()
        for item in found {
            while let missing = gap, missing.numbers.lowerBound < item.entry.sequence {
                lose(missing, layout)
                gap = next.next()
            }
            files[item.entry.fileID, default: LoggedChanges()].apply(
                item.entry, at: item.offset + UInt64(LogEntry.headSize), layout)
        }
        // Nothing was read after it, but it was durable.
        if let gap { lose(gap, layout) }
    }

    private mutating func lose(_ gap: Gap, _ layout: ChunkLayout) {
        damagedEntries += UInt64(gap.numbers.count)
        for head in gap.heads where head.kind == .records {
            files[head.fileID, default: LoggedChanges()].apply(head.lost, at: 0, layout, isAuthentic: false)
        }
    }

    /// The entries that are there, in order, and the numbers between them that are not.
    private static func entries(_ reader: inout LogReader) throws(StoreError) -> ([Found], [Gap]) {
        var (found, gaps): ([Found], [Gap]) = ([], [])
        var (sequence, offset) = (reader.header.startSequence, reader.header.startOffset)
        var search = Search()
        while true {
            var next = try entry(&reader, sequence, at: offset)
            if next == nil, let later = try search.entry(after: sequence, &reader) {
                // Another process may have written it since.
                next = try entry(&reader, sequence, at: offset)
                if next == nil {
                    gaps.append(gap(&reader, sequence, at: offset, before: later))
                    next = later
                }
            }
            guard let next else { break }
            found.append(next)
            (sequence, offset) = (next.entry.sequence + 1, next.offset + next.entry.space)
        }
        return (found, gaps)
    }

    private static func gap(
        _ reader: inout LogReader, _ sequence: UInt64, at offset: UInt64, before later: Found
    ) -> Gap {
        let numbers = sequence..<later.entry.sequence
        var heads: [LogEntry] = []
        var offset = offset
        for number in numbers {
            guard let (head, position) = head(&reader, number, at: offset) else {
                return Gap(numbers: numbers, heads: [])
            }
            heads.append(head)
            offset = position + head.space
        }
        let isPlausible = [offset, LogHeader.areaSize].contains(later.offset)
        return Gap(numbers: numbers, heads: isPlausible ? heads : [])
    }

    /// The head with this number, which is not authenticated, and its offset.
    private static func head(
        _ reader: inout LogReader, _ sequence: UInt64, at offset: UInt64
    ) -> (LogEntry, UInt64)? {
        for offset in [offset, LogHeader.areaSize] {
            if let head = reader.head(at: offset), head.sequence == sequence { return (head, offset) }
        }
        return nil
    }

    /// An entry that does not fit before the end of the log is at its beginning.
    private static func entry(
        _ reader: inout LogReader, _ sequence: UInt64, at offset: UInt64
    ) throws(StoreError) -> Found? {
        for offset in [offset, LogHeader.areaSize] {
            if let entry = try reader.entry(at: offset, sequence: sequence) {
                return Found(entry: entry, offset: offset)
            }
        }
        return nil
    }

    /// Finds entries whose predecessors are missing, by their heads.
    private struct Search {
        private var candidates: ArraySlice<(sequence: UInt64, offset: UInt64)>?
        private var authenticated: UInt64 = 0

        mutating func entry(after sequence: UInt64, _ reader: inout LogReader) throws(StoreError) -> Found? {
            var left = candidates ?? reader.possibleEntries(from: sequence)[...]
            defer { candidates = left }
            while let next = left.popFirst() {
                guard next.sequence > sequence else { continue }
                guard authenticated <= LogContents.searchLimit * reader.header.logSize else { return nil }
                authenticated += reader.head(at: next.offset)?.space ?? 0
                if let entry = try reader.entry(at: next.offset, sequence: next.sequence) {
                    return Found(entry: entry, offset: next.offset)
                }
            }
            return nil
        }
    }
}
