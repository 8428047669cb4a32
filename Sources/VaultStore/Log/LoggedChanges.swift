internal import Glibc
internal import VaultFormat

/// The changes of one file that are in the log and not yet in place, later ones instead of earlier ones.
struct LoggedChanges: Sendable {
    struct Record {
        /// Offset in the log.
        var position: UInt64
        var size: Int
        var sequence: UInt64
    }

    struct Hole {
        var chunks: Range<UInt64>
        var sequence: UInt64
    }

    /// By chunk.
    private(set) var records: [UInt64: Record] = [:]
    /// Chunks that are zeros, unless they have a record. In the order in which they were made.
    private(set) var holes: [Hole] = []
    /// The file's exact plaintext length, and the sequence number of the entry that says so. While there is one, the backing
    /// file's size means nothing.
    private(set) var exactLength: (length: UInt64, sequence: UInt64)?
    /// Of the last entry. 0 without one.
    private(set) var lastSequence: UInt64 = 0
    /// Time of the last entry, in nanoseconds since 1970.
    private(set) var time: UInt64 = 0

    var isEmpty: Bool { records.isEmpty && holes.isEmpty && exactLength == nil }

    /// Estimated bytes. A dictionary has a control word and free places beside its items.
    var memory: Int {
        records.capacity * (MemoryLayout<UInt64>.stride + MemoryLayout<Record>.stride + 3)
            + holes.capacity * MemoryLayout<Hole>.stride
    }

    /// Applies a later entry.
    /// - Parameter position: offset of the entry's body in the log.
    mutating func apply(_ entry: LogEntry, at position: UInt64, _ layout: ChunkLayout) {
        lastSequence = entry.sequence
        time = entry.time
        switch entry.kind {
        case .records:
            for index in 0..<entry.recordCount(layout) {
                let start = Int(index) * layout.recordSize
                records[entry.first + index] = Record(
                    position: position + UInt64(start), size: min(layout.recordSize, entry.bodySize - start),
                    sequence: entry.sequence)
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

    /// More holes make each lookup slow.
    static let mostHoles = 256

    /// Where a chunk's record is, if not in place.
    enum Source {
        case log(Record)
        case hole
    }

    func source(ofChunk chunk: UInt64) -> Source? {
        if let record = records[chunk] { return .log(record) }
        return holes.contains { $0.chunks.contains(chunk) } ? .hole : nil
    }

    /// The file's plaintext length with these changes.
    /// - Parameter backingSize: of the file without them.
    func length(_ backingSize: UInt64, _ layout: ChunkLayout) -> UInt64 {
        if let exactLength { return exactLength.length }
        let length = layout.plaintextLength(ofBackingSize: backingSize)
        guard let (last, record) = records.max(by: { $0.key < $1.key }) else { return length }
        return max(length, layout.plaintextOffset(ofChunk: last) + UInt64(record.size - ChunkLayout.recordOverhead))
    }
}
