/// The sizes, positions and protections of the samples of a track in a file or a fragment, in order.
struct Mp4Samples {
    /// Consecutive samples in the file.
    struct Run {
        var offset: UInt64
        var count: Int
        /// The track's protections, counted from 1.
        var entry: Int
    }

    /// Maximum number of samples in a fragment, or in a file without fragments: one that says more says nothing true.
    static let maximumCount = 1 << 22

    var runs: [Run] = []
    /// Bytes of each sample.
    var sizes: [UInt32] = []
    mutating func add(_ run: Run, size: UInt32) throws(ViewError) {
        try checkCount(adding: run.count)
        sizes += repeatElement(size, count: run.count)
        runs.append(run)
    }

    func checkCount(adding count: Int) throws(ViewError) {
        guard count <= Self.maximumCount - sizes.count else {
            throw .malformed("more than \(Self.maximumCount) samples in one fragment or file")
        }
    }

    /// Calls `body` with the offset and the size of each sample, and the number of its entry, counted from 1.
    func forEach(
        in buffer: Mp4Buffer, _ body: (UInt64, UInt32, Int) throws(ViewError) -> Void
    ) throws(ViewError) {
        var sample = 0
        for run in runs {
            var offset = run.offset
            for _ in 0..<run.count {
                let (end, overflow) = offset.addingReportingOverflow(UInt64(sizes[sample]))
                guard !overflow, end <= UInt64(Int64.max) else {
                    throw buffer.contradiction("a sample at \(offset) of \(sizes[sample]) bytes")
                }
                try body(offset, sizes[sample], run.entry)
                offset = end
                sample += 1
            }
        }
    }
}

/// Reads the vectors and subsamples of samples, one after another: `senc`, or what `saio` points to.
struct Mp4SampleInformation {
    private var fields: Mp4Fields
    private let hasSubsamples: Bool
    /// Entries that are left.
    private var rest: Int
    /// Bytes of each entry, from `saiz`. Empty if the entries themselves show their ends.
    private let sizes: [UInt8]
    private var next = 0
    /// True if clear samples have entries, too.
    private let includesClear: Bool
    /// Bytes of the running entry, if `saiz` gives them, and those read.
    private var size: UInt8?
    private var consumed = 0

    /// - Parameters:
    ///   - count: samples of the track.
    ///   - clear: those that are not encrypted.
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

    /// Begins the entry of a sample. Returns its vector.
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
        _ = try subsamples()
    }

    private mutating func begin() throws(ViewError) {
        guard rest > 0 else { throw .malformed("a senc with fewer entries than there are encrypted samples") }
        rest -= 1
        size = next < sizes.count ? sizes[next] : nil
        next += 1
    }

    /// The clear and the protected bytes of the parts of the sample. Nil if it is encrypted as a whole.
    mutating func subsamples() throws(ViewError) -> [(clear: UInt16, protected: UInt32)]? {
        if size.map({ Int($0) == consumed }) ?? !hasSubsamples { return nil }
        let count = Int(try fields.integer(UInt16.self))
        guard size.map({ Int($0) == consumed + 2 + 6 * count }) ?? true else {
            throw .malformed(
                "saiz gives an entry \(size ?? 0) bytes, and it has \(count) parts: the boxes contradict each other")
        }
        var parts: [(clear: UInt16, protected: UInt32)] = []
        parts.reserveCapacity(min(count, fields.remaining / 6))
        for _ in 0..<count { parts.append((try fields.integer(), try fields.integer())) }
        return parts
    }
}
