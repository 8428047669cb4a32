/// The growth of a file since its last sync: the condition for new chunks past its end, and what the log has of it.
struct Growth {
    /// The partial last chunk, once a sync may have put it on disk. No chunk may follow it until a whole record has
    /// replaced it durably: a power cut could otherwise leave a gap in the middle of the file.
    enum Tail {
        /// New chunks may be written past the end.
        case free
        case durable(UInt64)
        /// The log's entry `by` has replaced it. A sync may have begun since, with another partial last chunk, or none.
        case replaced(UInt64?, by: UInt64)

        fileprivate init(_ partialChunk: UInt64?) {
            self = if let partialChunk { .durable(partialChunk) } else { .free }
        }

        fileprivate var chunk: UInt64? {
            switch self {
            case .free: nil
            case .durable(let chunk): chunk
            case .replaced(let chunk, _): chunk
            }
        }
    }

    /// Maximum number of bytes logged, while the log has a file's length, before a checkpoint. Small rewritten files
    /// stay below.
    static let mostLogged = 4 << 20
    /// Maximum number of bytes of new chunks logged between two syncs, and in one write. A file that grows between
    /// frequent syncs then needs only those of the log.
    private static let mostLoggedGrowth = 256 << 10
    private static let largestLoggedGrowth = 64 << 10

    private(set) var tail = Tail.free
    /// Bytes of new chunks logged since the last sync.
    private(set) var loggedBytes = 0
    /// Bytes logged since the log has the file's length.
    private(set) var bytesWithLength = 0

    /// True if new chunks should be logged, because they are few, and because in place they would need a sync first:
    /// the durable tail is being replaced.
    /// - Parameters:
    ///   - first: the first chunk of the write.
    ///   - durableSequence: the log's last durable entry.
    func shouldLog(bytes count: Int, from first: UInt64, durableSequence: UInt64) -> Bool {
        guard count <= Self.largestLoggedGrowth, loggedBytes < Self.mostLoggedGrowth else { return false }
        switch tail {
        case .free: return false
        case .durable(let chunk): return chunk >= first
        case .replaced(let chunk, let sequence): return sequence > durableSequence || chunk.map { $0 >= first } ?? false
        }
    }

    /// Counts a partial last chunk as durable, because a sync begins. The sync may fail, so an awaited entry stays so.
    ///
    /// free, durable → free, durable; replaced → replaced
    mutating func beginSync(_ partialChunk: UInt64?) {
        if case .replaced(_, let sequence) = tail {
            tail = .replaced(partialChunk, by: sequence)
        } else {
            tail = Tail(partialChunk)
        }
        loggedBytes = 0
    }

    /// Counts logged chunks. If the tail is one of them, it is replaced.
    ///
    /// durable, replaced → replaced
    /// - Parameters:
    ///   - sequence: of their entry.
    ///   - isNew: true if the file grows by them.
    ///   - hasLength: true if the log has the file's length.
    mutating func logged(_ chunks: Range<UInt64>, _ bytes: Int, as sequence: UInt64, isNew: Bool, hasLength: Bool) {
        if isNew { loggedBytes += bytes }
        bytesWithLength = hasLength ? bytesWithLength + bytes : 0
        if let chunk = tail.chunk, chunks.contains(chunk) { tail = .replaced(chunk, by: sequence) }
    }

    /// Begins anew with this partial last chunk. The file is durable as it is, or the next checkpoint makes it so.
    ///
    /// free, durable, replaced → free, durable
    mutating func restart(_ partialChunk: UInt64?) {
        tail = Tail(partialChunk)
        bytesWithLength = 0
    }

    /// Lets new chunks follow, because the tail's replacement is durable.
    ///
    /// free, replaced → free
    mutating func release() {
        tail = .free
        loggedBytes = 0
    }
}

/// Space of the backing file, allocated for later records.
struct AllocatedSpace {
    /// Backing offset of its end. 0 once it was freed, or will be.
    var end: UInt64 = 0
    /// The value of `FileLog.freedSpace` at the allocation.
    var freed = 0
    /// True if a program has allocated space after the end, which stays.
    var isAhead = false
    /// True if the bytes of a failed write may follow the last record.
    var hasRest = false
}
