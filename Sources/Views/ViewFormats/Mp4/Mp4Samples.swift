/// The sizes, positions and protections of the samples of a track in a file or a fragment, in order.
struct Mp4Samples {
    /// Consecutive samples in the file.
    struct Run {
        var offset: UInt64
        var count: UInt32
        /// The number of the track's sample entry, and so of its protection, counted from 1.
        var entry: UInt32
        /// Bytes of each sample. Nil if they differ, and then come next in `sizes`.
        var size: UInt32?
    }

    private(set) var runs: [Run] = []
    /// The sizes in bytes of the samples in runs of different sizes.
    private var sizes: [UInt32] = []
    private(set) var count = 0

    /// Makes room for all runs at once, because a growing array takes memory twice.
    mutating func reserve(runs: Int, sizes: Int) {
        self.runs.reserveCapacity(runs)
        self.sizes.reserveCapacity(sizes)
    }

    /// Adds samples of one size, without entries in a table.
    mutating func add(_ run: Run, size: UInt32, _ budget: inout Mp4Budget) throws(ViewError) {
        try budget.spendSamples(Int(run.count), ofSize: size)
        try budget.spend(.run)
        count += Int(run.count)
        runs.append(run)
        runs[runs.count - 1].size = size
    }

    /// Adds samples with sizes from `next`.
    /// - Returns: their bytes together.
    mutating func add(
        _ run: Run, _ budget: inout Mp4Budget, next: () throws(ViewError) -> UInt32
    ) throws(ViewError) -> UInt64 {
        try budget.spend(.sample, Int(run.count))
        try budget.spend(.run)
        try budget.reserve(Int(run.count) * MemoryLayout<UInt32>.stride)
        count += Int(run.count)
        runs.append(run)
        var total: UInt64 = 0
        for _ in 0..<run.count {
            let size = try next()
            sizes.append(size)
            total += UInt64(size)
        }
        return total
    }

    /// Calls `body` with the offset and the size of each sample, and the number of its entry, counted from 1.
    func forEach(
        in buffer: Mp4Buffer, _ budget: inout Mp4Budget,
        _ body: (UInt64, UInt32, Int, inout Mp4Budget) throws(ViewError) -> Void
    ) throws(ViewError) {
        var listed = 0
        for run in runs {
            var offset = run.offset
            for _ in 0..<run.count {
                try budget.step()
                let size = run.size ?? sizes[listed]
                if run.size == nil { listed += 1 }
                let (end, overflow) = offset.addingReportingOverflow(UInt64(size))
                guard !overflow, end <= UInt64(Int64.max) else {
                    throw buffer.contradiction("a sample at \(offset) of \(size) bytes")
                }
                try body(offset, size, Int(run.entry), &budget)
                offset = end
            }
        }
    }
}

/// Reads the vectors and subsamples of samples, one after another, from `senc`, or from the place in `saio`.
struct Mp4SampleInformation {
    private var fields: Mp4Fields
    private let hasSubsamples: Bool
    /// Number of remaining entries.
    private var rest: Int
    /// Bytes of each entry, from `saiz`. Empty if the entries themselves show their ends.
    private let sizes: [UInt8]
    private var next = 0
    /// True if clear samples have entries, too.
    private let includesClear: Bool
    /// Bytes of the current entry, if `saiz` has them, and those read.
    private var size: UInt8?
    private var consumed = 0

    /// - Parameters:
    ///   - count: samples of the track.
    ///   - clear: the unencrypted ones among them.
    init(senc: Mp4Box, in buffer: Mp4Buffer, samples count: Int, clear: Int) throws(ViewError) {
        fields = buffer.fields(of: senc)
        let (version, flags) = try fields.versionAndFlags()
        guard version == 0 else { throw .malformed("several keys in one sample, which is not supported") }
        guard flags & 1 == 0 else { throw .malformed("a senc with parameters of its own, which is not supported") }
        hasSubsamples = flags & 2 != 0
        rest = Int(try fields.integer(UInt32.self))
        sizes = []
        includesClear = rest == count
        guard rest == count || rest == count - clear else {
            throw buffer.contradiction("a senc of \(rest) entries, for \(count) samples")
        }
    }

    /// - Parameter sizes: of each entry, one for each sample.
    init(_ auxiliary: Mp4Buffer, sizes: [UInt8]) {
        fields = Mp4Fields(auxiliary, 0..<auxiliary.bytes.count)
        hasSubsamples = false
        includesClear = true
        rest = sizes.count
        self.sizes = sizes
    }

    var isAtEnd: Bool { rest == 0 }

    /// An upper bound of the number of encrypted parts.
    var mostParts: Int { hasSubsamples || !sizes.isEmpty ? fields.remaining / 6 : rest }

    /// Begins the entry of a sample, and returns its vector.
    mutating func beginSample(_ protection: Mp4Protection) throws(ViewError) -> InitialVector {
        try begin()
        let start = fields.position
        let vector = protection.vectorSize == 0 ? protection.vector : try fields.vector(protection.vectorSize)
        consumed = fields.position - start
        return vector
    }

    mutating func skipClear() throws(ViewError) {
        guard includesClear else { return }
        try begin()
        consumed = 0
        let count = try parts() ?? 0
        try fields.skip(6 * count)
    }

    private mutating func begin() throws(ViewError) {
        guard rest > 0 else { throw .malformed("a senc with fewer entries than there are encrypted samples") }
        rest -= 1
        size = next < sizes.count ? sizes[next] : nil
        next += 1
    }

    /// Returns the number of parts of the sample, to be read with `part`. Nil if the sample is encrypted as a whole.
    mutating func parts() throws(ViewError) -> Int? {
        if size.map({ Int($0) == consumed }) ?? !hasSubsamples { return nil }
        let count = Int(try fields.integer(UInt16.self))
        guard size.map({ Int($0) == consumed + 2 + 6 * count }) ?? true else {
            throw .malformed(
                "saiz gives an entry \(size ?? 0) bytes, and it has \(count) parts: the boxes contradict each other")
        }
        try fields.check(count, ofSize: 6)
        return count
    }

    /// Reads the numbers of clear and of protected bytes of the next part.
    mutating func part() throws(ViewError) -> (clear: UInt16, protected: UInt32) {
        (try fields.integer(), try fields.integer())
    }
}
