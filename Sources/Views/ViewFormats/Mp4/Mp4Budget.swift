/// Limits of the work and the memory for one `moov` or `moof`, for all its tracks together.
///
/// Everything counted by a box is spent here before a loop runs over it. So the work is at most a few steps for each
/// byte of the box and of the media described by it, whatever the counts are.
struct Mp4Budget: ~Copyable {
    enum Item: Int, CaseIterable {
        /// Boxes, including those inside others.
        case box
        /// Entries of a table.
        case entry
        case sample
        /// Consecutive samples.
        case run
        /// Encrypted parts of samples.
        case range
        /// Ways of encryption: one for each vector.
        case cipher
        /// Sample entries and groups of samples.
        case protection
        /// Keys of encrypted parts.
        case key

        /// A film of a day without fragments has some 4 million samples.
        var limit: Int {
            switch self {
            case .sample, .range, .entry: 1 << 22
            case .run, .cipher: 1 << 20
            case .box: 1 << 16
            case .protection: 1 << 12
            case .key: 1 << 8
            }
        }

        /// Bytes of memory that one takes.
        var size: Int {
            switch self {
            case .box: MemoryLayout<Mp4Box>.stride + MemoryLayout<Mp4Patch>.stride
            case .entry, .sample: 0
            case .run: MemoryLayout<Mp4Samples.Run>.stride
            case .range: MemoryLayout<ProtectedRanges.Bytes>.stride
            case .cipher: MemoryLayout<ProtectedRanges.Cipher>.stride
            case .protection: MemoryLayout<Mp4Protection>.stride
            case .key: MemoryLayout<KeyID>.stride
            }
        }

        fileprivate var text: String { self == .entry ? "entries" : self == .box ? "boxes" : "\(self)s" }
    }

    /// The number of steps between checks for a lock, some 0.2 ms.
    private static let stepsBetweenChecks = 1 << 14
    /// Bytes reserved at a time.
    private static let lump = 1 << 16

    let work: Mp4Work
    private var left = Item.allCases.map(\.limit)
    /// Bytes left for samples, and for information about samples.
    private var media, information: UInt64
    private(set) var steps = 0
    private var nextCheck = 0
    /// Bytes of memory in use, and those reserved.
    private var memory = 0, reserved = 0

    /// - Parameter media: bytes of the file that can have the samples.
    init(_ work: Mp4Work, media: UInt64) {
        self.work = work
        self.media = media
        information = min(media, UInt64(Mp4Movie.maximumSize))
    }

    deinit { work.release(reserved) }

    /// Spends items.
    /// - Throws: `.malformed` if there are too many; `.store` at a lock, and without memory.
    mutating func spend(_ item: Item, _ count: Int = 1) throws(ViewError) {
        guard count <= left[item.rawValue] else {
            throw .malformed("more than \(item.limit) \(item.text) in one moov or moof")
        }
        left[item.rawValue] -= count
        steps += count
        if steps >= nextCheck { try check() }
        try reserve(count * item.size)
    }

    /// Spends samples without entries in a table. An empty one counts as one byte.
    mutating func spendSamples(_ count: Int, ofSize size: UInt32) throws(ViewError) {
        let (bytes, overflow) = UInt64(count).multipliedReportingOverflow(by: UInt64(max(size, 1)))
        guard !overflow, bytes <= media else {
            throw .malformed(
                "\(count) samples of \(size) bytes do not fit into the file: it is cut, or the boxes are wrong")
        }
        media -= bytes
        try spend(.sample, count)
    }

    /// Spends bytes of information about samples, stored outside the box.
    mutating func spendInformation(_ bytes: Int) throws(ViewError) {
        guard UInt64(bytes) <= information else {
            throw .malformed("sample information of more than \(Mp4Movie.maximumSize >> 20) MiB, or than the file has")
        }
        information -= UInt64(bytes)
        try reserve(bytes)
    }

    /// Reserves memory until the end of the reading.
    mutating func reserve(_ bytes: Int) throws(ViewError) {
        memory += bytes
        guard memory > reserved else { return }
        let more = max(Self.lump, memory - reserved)
        try work.reserve(more)
        reserved += more
    }

    /// Gives reserved memory to an object.
    mutating func keep(_ bytes: Int) throws(ViewError) -> Mp4Reservation {
        if bytes > memory { try reserve(bytes - memory) }
        memory -= bytes
        reserved -= bytes
        return Mp4Reservation(bytes, of: work)
    }

    /// Counts one step, for a loop that spends nothing else.
    mutating func step() throws(ViewError) {
        steps += 1
        if steps >= nextCheck { try check() }
    }

    private mutating func check() throws(ViewError) {
        nextCheck = steps + Self.stepsBetweenChecks
        try work.interruption.check()
    }
}
