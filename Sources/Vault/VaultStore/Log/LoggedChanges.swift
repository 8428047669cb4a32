internal import Glibc
package import LinuxSystem
package import VaultFormat

/// The changes of one file that are in the log and not yet in place. Later ones replace earlier ones.
package struct LoggedChanges: Sendable {
    package struct Record {
        /// Offset in the log. Nil for a lost record.
        var position: UInt64?
        var size: Int
        var sequence: UInt64
    }

    package struct Hole {
        var chunks: Range<UInt64>
        var sequence: UInt64
    }

    /// By chunk.
    package private(set) var records: [UInt64: Record] = [:]
    /// Chunks of zeros, except those with a record. In the order of their making.
    package private(set) var holes: [Hole] = []
    /// The file's exact plaintext length, and the sequence number of its entry. With one, the backing file's size does
    /// not count.
    package private(set) var exactLength: (length: UInt64, sequence: UInt64)?
    /// The sequence number of the last entry. 0 without one.
    private(set) var lastSequence: UInt64 = 0
    /// Time of the last entry, in nanoseconds since 1970.
    private(set) var time: UInt64 = 0
    /// The seal counter of the file's header when the entries were made.
    package private(set) var sealCounter: UInt64 = 0
    /// Number of entries with an earlier seal counter than others. They are not applied.
    private var outdatedEntries = 0
    private var entries = 0

    var isEmpty: Bool { records.isEmpty && holes.isEmpty && exactLength == nil }

    /// The chunks whose records are lost.
    var lostChunks: [UInt64] { records.filter { $0.value.position == nil }.keys.sorted() }

    /// True if putting them in place may free space of the file.
    var mayFreeSpace: Bool { exactLength != nil || !holes.isEmpty }

    /// Bytes of the records. As many may be needed in place.
    var recordBytes: UInt64 { records.values.reduce(0) { $0 + UInt64($1.size) } }

    /// Returns the number of entries for an earlier state of a file with this seal counter. They must not be applied.
    package func outdated(_ sealCounter: UInt64) -> Int {
        outdatedEntries + (self.sealCounter < sealCounter ? entries : 0)
    }

    /// False if the backing file's times show a write in place after the last entry. A write sets both times. Only a
    /// program sets a modification time after the time of change.
    func areNewest(_ backing: stat) -> Bool {
        let modified = backing.st_mtim.nanoseconds
        return modified <= time || modified > backing.st_ctim.nanoseconds
    }

    /// Estimated bytes. A dictionary has a control word and free places beside its items.
    var memory: Int {
        records.capacity * (MemoryLayout<UInt64>.stride + MemoryLayout<Record>.stride + 3)
            + holes.capacity * MemoryLayout<Hole>.stride
    }

    /// Applies a later entry.
    mutating func apply(_ logged: LoggedEntry, _ layout: ChunkLayout) {
        let entry = logged.entry
        guard accept(entry) else { return }
        lastSequence = entry.sequence
        time = entry.time
        switch entry.kind {
        case .records, .lost:
            let size = entry.kind == .lost ? Int(entry.end) : entry.bodySize
            for (index, chunk) in entry.chunks(layout).enumerated() {
                let start = index * layout.recordSize
                records[chunk] = Record(
                    position: entry.kind == .lost ? nil : logged.offset + UInt64(LogEntry.headSize + start),
                    size: min(layout.recordSize, size - start), sequence: entry.sequence)
            }
        case .length: break
        case .hole: makeHole(entry.first..<entry.end, entry.sequence)
        }
        guard entry.isExact else { return }
        if exactLength.map({ $0.length > entry.length }) ?? true {
            let chunks = layout.chunkCount(ofLength: entry.length)
            records = records.filter { $0.key < chunks }
            holes = holes.compactMap { hole in
                let left = hole.chunks.clamped(to: 0..<chunks)
                return left.isEmpty ? nil : Hole(chunks: left, sequence: hole.sequence)
            }
        }
        exactLength = (entry.length, entry.sequence)
    }

    /// Returns false for an entry of an earlier state of the file than those before. An entry of a later state replaces
    /// them.
    private mutating func accept(_ entry: LogEntry) -> Bool {
        if entries > 0, entry.sealCounter != sealCounter {
            guard entry.sealCounter > sealCounter else {
                outdatedEntries += 1
                return false
            }
            let outdated = outdatedEntries + entries
            self = LoggedChanges()
            outdatedEntries = outdated
        }
        sealCounter = entry.sealCounter
        entries += 1
        return true
    }

    private mutating func makeHole(_ chunks: Range<UInt64>, _ sequence: UInt64) {
        if UInt64(records.count) > UInt64(chunks.count) {
            for chunk in chunks { records.removeValue(forKey: chunk) }
        } else {
            records = records.filter { !chunks.contains($0.key) }
        }
        holes.append(Hole(chunks: chunks, sequence: sequence))
    }

    /// Removes the entries up to a sequence number, which are in place.
    mutating func drop(through sequence: UInt64) {
        if lastSequence <= sequence {
            self = LoggedChanges()
            return
        }
        records = records.filter { $0.value.sequence > sequence }
        holes.removeAll { $0.sequence <= sequence }
        if let exact = exactLength, exact.sequence <= sequence { exactLength = nil }
    }

    /// Maximum number of holes, because more make each lookup slow.
    static let mostHoles = 256

    /// The source of a chunk that is not in place.
    package enum Source {
        case log(Record)
        case hole
    }

    package func source(ofChunk chunk: UInt64) -> Source? {
        if let record = records[chunk] { return .log(record) }
        return holes.contains { $0.chunks.contains(chunk) } ? .hole : nil
    }

    /// The file's plaintext length with these changes.
    /// - Parameter backingSize: of the file without them.
    package func length(_ backingSize: UInt64, _ layout: ChunkLayout) -> UInt64 {
        if let exactLength { return exactLength.length }
        let length = layout.plaintextLength(ofBackingSize: backingSize)
        guard let (last, record) = records.max(by: { $0.key < $1.key }) else { return length }
        return max(length, layout.plaintextOffset(ofChunk: last) + UInt64(record.size - ChunkLayout.recordOverhead))
    }

    /// True if these changes unseal a file with this sealed header (FileFormat, Store-3). The changes decide, and not
    /// the size of the backing file, which another program may have changed.
    package func unseal(_ header: FileHeader, _ layout: ChunkLayout) -> Bool {
        exactLength != nil || sealCounter > header.sealCounter
            || length(layout.backingSize(ofPlaintextLength: header.length), layout) > header.length
    }

    mutating func loseRecords() {
        records = records.mapValues { Record(position: nil, size: $0.size, sequence: $0.sequence) }
    }

    /// Replaces records by those in a log.
    /// - Parameters:
    ///   - records: of adjacent chunks from `first` on.
    ///   - source: returns the source of a chunk, and the log. Nil keeps the record.
    /// - Throws: `.damaged` if the log is too short; errno of pread(2).
    package static func replace(
        _ first: UInt64, in records: UnsafeMutableRawBufferPointer, _ layout: ChunkLayout,
        _ source: (UInt64) -> (Source, Descriptor?)?
    ) throws(StoreError) {
        var start = 0
        var chunk = first
        while start < records.count {
            let slot = records.slice(start..<min(start + layout.recordSize, records.count))
            switch source(chunk) {
            case (.log(let record), let log?)?:
                // The size differs only while a writer is running, and then the tag does not verify.
                if record.size != slot.count { slot.fill(with: 0xFF) }
                var part = record
                part.size = min(slot.count, record.size)
                try log.read(part, into: slot.slice(..<part.size))
            case (.log, nil)?, nil: break
            case (.hole, _)?: slot.fill(with: 0)
            }
            chunk += 1
            start += slot.count
        }
    }
}

extension Descriptor {
    /// Reads a record from this log. A lost one becomes bytes that verify for no chunk.
    /// - Parameter bytes: room for the record.
    func read(_ record: LoggedChanges.Record, into bytes: UnsafeMutableRawBufferPointer) throws(StoreError) {
        guard let position = record.position else { return bytes.fill(with: 0xFF) }
        guard try read(at: position, into: bytes) == bytes.count else { throw .damaged("vaultfs.log: cut short") }
    }
}
