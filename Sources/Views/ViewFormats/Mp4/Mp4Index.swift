internal import Synchronization

/// Finds and parses the fragments of a file. Keeps their positions, and some fragments themselves. Any thread.
///
/// The beginning of a fragment depends on the file alone, not on the order of reads. The index walks over boxes one
/// after another, from the `moov` or from the beginning of a part according to a `sidx`, to the beginning of the next
/// part.
final class Mp4Index: Sendable {
    /// Maximum number of boxes in a part. A day of fragments of a second has 350,000.
    private static let maximumBoxes = 1 << 20
    /// Number of boxes between two checks for a lock.
    private static let boxesBetweenChecks = 64
    /// The most fragments in memory, some 2 KiB each: those of three hours.
    private static let maximumFragments = 2048
    private static let maximumFailures = 256

    private let source: SourceFile
    let role: Mp4Plan.Role
    private let work: Mp4Work
    /// Held during the walk and the parsing, so that a large box takes memory once.
    private let walk: Mutex<Walk>
    private let loaded = Mutex(Loaded())
    private let memory: Mp4Reservation

    /// - Throws: `.store` without memory.
    init(of source: SourceFile, _ role: Mp4Plan.Role, _ work: Mp4Work) throws(ViewError) {
        (self.source, self.role, self.work) = (source, role, work)
        walk = Mutex(Walk(source, role))
        try work.reserve(Mp4Window.memory)
        memory = Mp4Reservation(Mp4Window.memory, of: work)
        work.add(self)
    }

    deinit { work.remove(self) }

    /// Returns the fragment, or the part before the first one, with the byte at an offset of the file.
    func fragment(at offset: UInt64) throws(ViewError) -> Mp4Fragment {
        if let found = loaded.withLock({ $0.find(offset, at: work.now) }) { return found }
        return try walk.withLock { (walk) throws(ViewError) in
            // Another thread may have loaded it meanwhile.
            if let found = loaded.withLock({ $0.find(offset, at: work.now) }) { return found }
            try work.interruption.check()
            let extent = try walk.extent(around: offset, work)
            if let failure = walk.failures[extent.bytes.lowerBound] { throw failure }
            let fragment: Mp4Fragment
            do throws(ViewError) { fragment = try load(extent, &walk.window) } catch {
                walk.add(error, at: extent)
                throw error
            }
            work.tick()
            loaded.withLock { $0.insert(fragment, at: work.now) }
            return fragment
        }
    }

    private func load(_ extent: Extent, _ window: inout Mp4Window) throws(ViewError) -> Mp4Fragment {
        let bytes = extent.bytes
        var budget = Mp4Budget(work, media: bytes.upperBound - bytes.lowerBound)
        switch (role, extent.moofSize) {
        case (.film(let movie), 1...), (.segment(let movie), 1...):
            let moof = bytes.lowerBound..<(bytes.lowerBound + UInt64(extent.moofSize))
            let other = loaded.withLock { $0.last }
            return try Mp4Fragment(
                window.contents(of: "moof", moof, &budget), bytes, movie, of: source, like: other, &budget)
        case (.film(let movie), 0) where bytes.lowerBound == 0:
            let ranges = try movie.ranges(&window, before: bytes.upperBound, &budget)
            return try Mp4Fragment(bytes, ranges: ranges, patches: movie.patches, &budget)
        case (.initSegments(let movies), 0):
            return try Mp4Fragment(bytes, patches: movies.flatMap(\.patches).sorted { $0.offset < $1.offset }, &budget)
        default: return try Mp4Fragment(bytes, &budget)
        }
    }

    // MARK: Memory

    /// The time of the oldest use of a loaded fragment; nil without one.
    var oldestUse: UInt64? { loaded.withLock { $0.all.lazy.map(\.use).min() } }

    func drop(usedUntil time: UInt64) { loaded.withLock { $0.drop(usedUntil: time) } }

    /// Fragments in memory, in ascending order, and their last use.
    private struct Loaded {
        /// The start is the fragment's, for the search.
        var all: [(start: UInt64, fragment: Mp4Fragment, use: UInt64)] = []

        var last: Mp4Fragment? { all.last?.fragment }

        mutating func find(_ offset: UInt64, at time: UInt64) -> Mp4Fragment? {
            let position = all.leadingCount { $0.start <= offset } - 1
            guard position >= 0, all[position].fragment.bytes.contains(offset) else { return nil }
            all[position].use = time
            return all[position].fragment
        }

        mutating func insert(_ fragment: Mp4Fragment, at time: UInt64) {
            if all.count >= Mp4Index.maximumFragments {
                let uses = all.map(\.use).sorted()
                drop(usedUntil: uses[uses.count / 4])
            }
            let position = all.leadingCount { $0.start <= fragment.bytes.lowerBound }
            all.insert((fragment.bytes.lowerBound, fragment, time), at: position)
        }

        mutating func drop(usedUntil time: UInt64) { all.removeAll { $0.use <= time } }
    }

    // MARK: Places

    /// The position of a fragment in the file.
    private struct Extent {
        /// From the `moof` to the next one, or without a `moof`, the bytes before the first one of a part.
        var bytes: Range<UInt64>
        /// Size in bytes; 0 without a `moof`.
        var moofSize: UInt32
    }

    /// The beginning of an extent, and so the end of the one before.
    private struct Mark {
        var start: UInt64
        var moofSize: UInt32 = 0
    }

    /// A part of the file. The walk over its boxes goes as far as reads need it.
    private struct Part {
        let end: UInt64
        /// The next box.
        var next: UInt64
        /// The extent of the walk.
        var current: Mark
        /// The extents before it.
        var marks: [Mark] = []
        var boxes = 0
        /// The error that ended the walk.
        var failure: ViewError?

        /// - Parameters:
        ///   - first: the first box.
        ///   - start: the first byte, before the first box if bytes before it were walked over.
        init(from start: UInt64, first: UInt64, to end: UInt64) {
            (next, self.end) = (first, end)
            current = Mark(start: start)
        }

        /// Returns the extent around an offset, if its end is known.
        func extent(around offset: UInt64) -> Extent? {
            if offset >= current.start { return nil }
            let position = marks.leadingCount { $0.start <= offset } - 1
            let end = position + 1 < marks.count ? marks[position + 1].start : current.start
            return Extent(bytes: marks[position].start..<end, moofSize: marks[position].moofSize)
        }
    }

    private struct Walk {
        let role: Mp4Plan.Role
        var window: Mp4Window
        /// The beginnings of the parts, in ascending order. Empty before the first use.
        var starts: [UInt64] = []
        /// The begun parts, by their positions in `starts`.
        var parts: [Int: Part] = [:]
        /// The errors of unreadable extents, by their starts, so that the next read finds them without the work.
        private(set) var failures: [UInt64: ViewError] = [:]
        /// Memory of the marks and the parts.
        var memory: [Mp4Reservation] = []

        init(_ source: SourceFile, _ role: Mp4Plan.Role) { (window, self.role) = (Mp4Window(source), role) }

        mutating func add(_ failure: ViewError, at extent: Extent) {
            guard case .malformed = failure else { return }
            if failures.count >= Mp4Index.maximumFailures { failures = [:] }
            failures[extent.bytes.lowerBound] = failure
        }

        mutating func extent(around offset: UInt64, _ work: Mp4Work) throws(ViewError) -> Extent {
            let size = window.source.size
            if starts.isEmpty {
                switch role {
                case .film(let movie): starts = [movie.end] + (try window.starts(after: movie.end, work))
                case .segment: starts = [0]
                case .initSegments: starts = [size]
                }
                try reserve(starts.count * MemoryLayout<UInt64>.stride, work)
            }
            let position = max(starts.leadingCount { $0 <= offset } - 1, 0)
            let end = position + 1 < starts.count ? starts[position + 1] : size
            if parts[position] == nil { try reserve(2 * MemoryLayout<Part>.stride, work) }
            var part =
                parts.removeValue(forKey: position)
                ?? Part(from: position == 0 ? 0 : starts[position], first: starts[position], to: end)
            defer { parts[position] = part }
            while true {
                if let found = part.extent(around: offset) { return found }
                if let failure = part.failure { throw failure }
                do throws(ViewError) { try advance(&part, work) } catch {
                    // Keep the error, so that the next read finds it without the walk.
                    if case .malformed = error { part.failure = error }
                    throw error
                }
            }
        }

        /// Walks to the end of the current extent.
        private mutating func advance(_ part: inout Part, _ work: Mp4Work) throws(ViewError) {
            while part.next < part.end {
                part.boxes += 1
                guard part.boxes <= Mp4Index.maximumBoxes else {
                    throw .malformed("more than \(Mp4Index.maximumBoxes) boxes")
                }
                if part.boxes % Mp4Index.boxesBetweenChecks == 0 { try work.interruption.check() }
                guard let box = try window.box(at: part.next) else { break }
                if box.type == "moov" { throw .malformed("there is a second moov at \(part.next)") }
                let isEnd = box.type == "moof" && (part.current.moofSize > 0 || part.next > part.current.start)
                if isEnd { try finish(&part, at: part.next, work) }
                if box.type == "moof" {
                    part.current.moofSize = UInt32(clamping: box.bytes.upperBound - box.bytes.lowerBound)
                }
                part.next = box.bytes.upperBound
                if isEnd { return }
            }
            // Only the last box of a file can be cut.
            guard part.next <= part.end || part.end == window.source.size else {
                throw .malformed("a sidx names \(part.end), where no box begins")
            }
            try finish(&part, at: part.end, work)
        }

        /// Ends the current extent, and begins the next one.
        private mutating func finish(_ part: inout Part, at end: UInt64, _ work: Mp4Work) throws(ViewError) {
            let count = part.marks.count
            if count & (count - 1) == 0 { try reserve(max(1, count) * MemoryLayout<Mark>.stride, work) }
            part.marks.append(part.current)
            part.current = Mark(start: end)
        }

        private mutating func reserve(_ bytes: Int, _ work: Mp4Work) throws(ViewError) {
            try work.reserve(bytes)
            memory.append(Mp4Reservation(bytes, of: work))
        }
    }
}

/// A `sidx`. Without it, a seek to the end of an uncached film of two hours takes 3600 reads of the disk.
extension Mp4Window {
    /// The largest `sidx`, in bytes.
    private static let maximumIndexSize: UInt64 = 1 << 20
    /// The most boxes between a `moov` and its `sidx`.
    private static let maximumDistance = 16
    /// The boxes at the beginning of a part.
    private static let firstTypes: Set<Mp4Type> = ["moof", "styp", "sidx", "emsg", "prft", "free", "skip"]

    /// Returns the offsets at which parts of a film begin, from its first `sidx`. Empty if a part does not begin at the
    /// last one, as in a file changed without its `sidx`.
    fileprivate mutating func starts(after moov: UInt64, _ work: Mp4Work) throws(ViewError) -> [UInt64] {
        do throws(ViewError) {
            var next = moov
            for _ in 0..<Self.maximumDistance {
                guard let box = try box(at: next), box.type != "moof" else { return [] }
                if box.type == "sidx" {
                    var budget = Mp4Budget(work, media: 0)
                    let starts = try starts(in: box, &budget)
                    guard let last = starts.last, let box = try self.box(at: last) else { return [] }
                    return Self.firstTypes.contains(box.type) ? starts : []
                }
                next = box.bytes.upperBound
            }
        } catch .malformed {
            // Ignore it, because a walk over all boxes finds the reason.
        }
        return []
    }

    /// Parses a `sidx` (ISO/IEC 14496-12, 8.16.3).
    private mutating func starts(in sidx: Mp4TopBox, _ budget: inout Mp4Budget) throws(ViewError) -> [UInt64] {
        guard sidx.bytes.upperBound - sidx.bytes.lowerBound <= Self.maximumIndexSize else { return [] }
        let buffer = try contents(of: sidx.type, sidx.bytes, &budget)
        var fields = Mp4Fields(buffer, sidx.headerSize..<buffer.bytes.count)
        let isLong = try fields.versionAndFlags().version > 0
        try fields.skip(isLong ? 16 : 12)
        let first = isLong ? try fields.integer(UInt64.self) : UInt64(try fields.integer(UInt32.self))
        try fields.skip(2)
        let count = Int(try fields.integer(UInt16.self))
        try budget.spend(.entry, count)
        var (next, overflow) = sidx.bytes.upperBound.addingReportingOverflow(first)
        var starts: [UInt64] = []
        for _ in 0..<count where !overflow && next < source.size {
            starts.append(next)
            let size = UInt64(try fields.integer(UInt32.self) & 0x7FFF_FFFF)
            try fields.skip(8)
            guard size > 0 else { return [] }
            (next, overflow) = next.addingReportingOverflow(size)
        }
        // Leave out the first one, because a walk begins there anyway.
        return Array(starts.dropFirst())
    }
}
