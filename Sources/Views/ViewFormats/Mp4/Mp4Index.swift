internal import Synchronization

/// Finds and parses the fragments of a file. Keeps where they are, and a bounded number of them. Any thread.
final class Mp4Index: Sendable {
    private static let maximumBoxes = 1 << 20
    /// A film of three hours has about as many. Each takes some 2 KiB.
    private static let maximumFragments = 2048
    private static let maximumRanges = 1 << 20
    /// Size of a `sidx`, in bytes.
    private static let maximumHintSize: UInt64 = 1 << 20
    /// Boxes between a `moov` and its `sidx`.
    private static let maximumHintDistance = 16
    /// The boxes with which a segment begins.
    private static let firstTypes: Set<Mp4Type> = ["moof", "styp", "sidx", "emsg", "prft", "free", "skip"]

    private struct Extent {
        /// From the `moof` to the next one.
        var bytes: Range<UInt64>
        var moof: Mp4TopBox
    }

    private struct State {
        /// Known fragments, in ascending order.
        var known: [Extent] = []
        /// The end of the part before the first `moof`.
        var headEnd: UInt64?
        /// Fragments in memory, in ascending order, and their last use. The start is the fragment's, for the search.
        var loaded: [(start: UInt64, fragment: Mp4Fragment, use: UInt64)] = []
        /// The number of their ranges.
        var loadedRanges = 0
        var clock: UInt64 = 0
        /// Offsets where `sidx` says that boxes begin, in ascending order. Nil if it was not read yet.
        var hints: [UInt64]?
        /// The bytes that were read last.
        var window: Mp4Window

        /// The number of known fragments that begin at or before an offset.
        func knownCount(upTo offset: UInt64) -> Int { Self.count(known.count) { known[$0].bytes.lowerBound <= offset } }

        private func loadedCount(upTo offset: UInt64) -> Int {
            Self.count(loaded.count) { loaded[$0].start <= offset }
        }

        /// The number of leading positions for which `isBefore` is true, as it is for none after them.
        private static func count(_ count: Int, _ isBefore: (Int) -> Bool) -> Int {
            var range = 0..<count
            while !range.isEmpty {
                let middle = (range.lowerBound + range.upperBound) / 2
                range = isBefore(middle) ? (middle + 1)..<range.upperBound : range.lowerBound..<middle
            }
            return range.lowerBound
        }

        mutating func add(_ extent: Extent) {
            let position = knownCount(upTo: extent.bytes.lowerBound)
            if position > 0, known[position - 1].bytes.lowerBound == extent.bytes.lowerBound { return }
            known.insert(extent, at: position)
        }

        mutating func find(_ offset: UInt64) -> Mp4Fragment? {
            let position = loadedCount(upTo: offset) - 1
            guard position >= 0, loaded[position].fragment.bytes.contains(offset) else { return nil }
            clock += 1
            loaded[position].use = clock
            return loaded[position].fragment
        }

        mutating func insert(_ fragment: Mp4Fragment) {
            let count = fragment.ranges.all.count
            while loaded.count >= Mp4Index.maximumFragments
                || (loadedRanges + count > Mp4Index.maximumRanges && !loaded.isEmpty),
                let oldest = loaded.indices.min(by: { loaded[$0].use < loaded[$1].use })
            {
                loadedRanges -= loaded.remove(at: oldest).fragment.ranges.all.count
            }
            // Another thread may have loaded it meanwhile.
            let position = loadedCount(upTo: fragment.bytes.lowerBound)
            if position > 0, loaded[position - 1].fragment.bytes == fragment.bytes { return }
            clock += 1
            loaded.insert((fragment.bytes.lowerBound, fragment, clock), at: position)
            loadedRanges += count
        }
    }

    private let source: SourceFile
    let movie: Mp4Movie
    /// True if the file has the `moov` itself. False for a segment with an init segment.
    private let isOwn: Bool
    private let state: Mutex<State>

    init(of source: SourceFile, _ movie: Mp4Movie, isOwn: Bool) {
        (self.source, self.movie, self.isOwn) = (source, movie, isOwn)
        state = Mutex(State(window: Mp4Window(source)))
    }

    /// The offset from which the boxes of this file are walked over.
    private var start: UInt64 { isOwn ? movie.end : 0 }

    /// The fragment, or the part before the first one, that has the byte at an offset of the file.
    func fragment(at offset: UInt64) throws(ViewError) -> Mp4Fragment {
        if let found = state.withLock({ $0.find(offset) }) { return found }
        var window = state.withLock { $0.window }
        let fragment: Mp4Fragment
        if let extent = try extent(around: offset, &window) {
            let other = state.withLock { $0.loaded.last?.fragment }
            fragment = try Mp4Fragment(
                window.contents(of: extent.moof), extent.bytes, movie, of: source, like: other)
        } else {
            let end = state.withLock { $0.headEnd } ?? source.size
            fragment = try Mp4Fragment(
                before: end, ranges: isOwn ? movie.ranges : ProtectedRanges(), patches: isOwn ? movie.patches : [])
        }
        state.withLock { state in
            state.insert(fragment)
            state.window = window
        }
        return fragment
    }

    /// The fragment around an offset. Nil for the part before the first one.
    private func extent(around offset: UInt64, _ window: inout Mp4Window) throws(ViewError) -> Extent? {
        enum Known {
            case extent(Extent?)
            case from(UInt64)
        }
        let known = state.withLock { state -> Known in
            if let end = state.headEnd, offset < end { return .extent(nil) }
            let count = state.knownCount(upTo: offset)
            guard count > 0 else { return .from(start) }
            let last = state.known[count - 1]
            return last.bytes.contains(offset) ? .extent(last) : .from(last.bytes.upperBound)
        }
        switch known {
        case .extent(let found): return found
        case .from(let from):
            let hints = try hints(&window)
            // The boxes between the last hint and its moof belong to the fragment before.
            for hint in hints.prefix(while: { $0 <= offset }).suffix(2).reversed() where hint > from {
                do throws(ViewError) {
                    if let found = try walk(from: hint, to: offset, hints, &window) { return found }
                } catch .malformed {
                    // The sidx lies.
                    state.withLock { $0.hints = [] }
                    break
                }
            }
            return try walk(from: from, to: offset, [], &window)
        }
    }

    /// Walks over the boxes from one box to the fragment around an offset, and keeps what it finds.
    ///
    /// - Parameter hints: where boxes must begin. Empty if `from` is known to be the beginning of a box.
    private func walk(
        from: UInt64, to offset: UInt64, _ hints: [UInt64], _ window: inout Mp4Window
    ) throws(ViewError) -> Extent? {
        var next = from
        var moof: Mp4TopBox?
        var moofWindow = window
        var expected = hints.drop { $0 <= from }
        /// Returns the extent that ends here, if it is the wanted one.
        func end(at position: UInt64) -> Extent? {
            guard let moof else {
                if from == start { state.withLock { $0.headEnd = position } }
                return nil
            }
            let extent = Extent(bytes: moof.bytes.lowerBound..<position, moof: moof)
            state.withLock { $0.add(extent) }
            return extent.bytes.contains(offset) ? extent : nil
        }
        for number in 0..<Self.maximumBoxes {
            guard let box = try window.box(at: next) else { return end(at: source.size) }
            if let hint = expected.first {
                guard next <= hint else { throw .malformed("a sidx names \(hint), where no box begins") }
                if next == hint { expected = expected.dropFirst() }
            }
            if number == 0, !hints.isEmpty, !Self.firstTypes.contains(box.type) {
                throw .malformed("a sidx names \(next), where no fragment begins")
            }
            if box.type == "moof" {
                if let found = end(at: next) {
                    // Its bytes are needed next.
                    window = moofWindow
                    return found
                }
                if next > offset { return nil }
                (moof, moofWindow) = (box, window)
            } else if box.type == "moov" {
                throw .malformed("there is a second moov at \(next)")
            }
            next = min(box.bytes.upperBound, source.size)
        }
        throw .malformed("more than \(Self.maximumBoxes) boxes")
    }

    // MARK: Hints

    /// The offsets in the first `sidx`. Wrong ones are noticed later.
    private func hints(_ window: inout Mp4Window) throws(ViewError) -> [UInt64] {
        if let known = state.withLock({ $0.hints }) { return known }
        var hints: [UInt64] = []
        var next = start
        for _ in 0..<Self.maximumHintDistance {
            guard let box = try window.box(at: next), box.type != "moof" else { break }
            if box.type == "sidx", box.bytes.count <= Self.maximumHintSize {
                hints = (try? Self.hints(of: box, window.contents(of: box), fileSize: source.size)) ?? []
                break
            }
            next = box.bytes.upperBound
        }
        state.withLock { $0.hints = hints }
        return hints
    }

    /// Parses a `sidx` (ISO/IEC 14496-12, 8.16.3).
    private static func hints(
        of sidx: Mp4TopBox, _ bytes: [UInt8], fileSize: UInt64
    ) throws(ViewError) -> [UInt64] {
        let buffer = Mp4Buffer(bytes: bytes, start: sidx.bytes.lowerBound)
        var fields = Mp4Fields(buffer, sidx.headerSize..<bytes.count)
        let isLong = try fields.versionAndFlags().version > 0
        try fields.skip(isLong ? 16 : 12)
        let first = isLong ? try fields.integer(UInt64.self) : UInt64(try fields.integer(UInt32.self))
        try fields.skip(2)
        let count: UInt16 = try fields.integer()
        var (next, overflow) = sidx.bytes.upperBound.addingReportingOverflow(first)
        var hints: [UInt64] = []
        for _ in 0..<count where !overflow && next < fileSize {
            hints.append(next)
            let size = UInt64(try fields.integer(UInt32.self) & 0x7FFF_FFFF)
            try fields.skip(8)
            (next, overflow) = next.addingReportingOverflow(size)
        }
        // Sorted, and each once.
        return zip(hints, hints.dropFirst()).allSatisfy { $0 < $1 } ? hints : []
    }
}
