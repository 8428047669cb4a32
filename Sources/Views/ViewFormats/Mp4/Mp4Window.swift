internal import LinuxSystem

/// A box of a file's top level.
struct Mp4TopBox: Sendable {
    let type: Mp4Type
    let bytes: Range<UInt64>
    /// Size of the header, in bytes.
    let headerSize: Int

    /// Bytes to read for a header.
    static let headerSize = 16

    /// Parses a header; nil if the bytes are not a box's.
    init?(_ header: [UInt8], at start: UInt64, fileSize: UInt64) {
        guard header.count >= 8 else { return nil }
        func number(_ range: Range<Int>) -> UInt64 { header[range].reduce(0) { $0 << 8 | UInt64($1) } }
        var size = number(0..<4)
        type = Mp4Type(code: UInt32(number(4..<8)))
        var headerSize = 8
        if size == 1 {
            guard header.count >= 16 else { return nil }
            size = number(8..<16)
            headerSize = 16
        } else if size == 0 {
            // The box goes to the end of the file.
            size = fileSize - start
        }
        let (end, overflow) = start.addingReportingOverflow(size)
        // A uuid box has 16 more bytes of type (ISO/IEC 14496-12, 4.2). Players do not read a file without them.
        let minimum = headerSize + (type == "uuid" ? 16 : 0)
        guard size >= UInt64(minimum), !overflow, end <= UInt64(Int64.max) else { return nil }
        self.headerSize = headerSize
        bytes = start..<end
    }
}

/// Reads boxes of a file's top level, or of a range as if it were a file. Reads near ones with one pread(2). One thread
/// at a time.
struct Mp4Window: Sendable {
    /// The size, in bytes, of a `moof` of a few seconds and the header after it.
    private static let size = 8192
    /// Bytes of memory.
    static let memory = 3 * size
    /// The most boxes that `first` walks over. Before a `moov` there are few.
    private static let maximumWalk = 1024

    let source: SourceFile
    /// The bytes of the last read.
    private var last = Bytes()
    /// The bytes of the second last read: of a `moof`, while its end was searched.
    private var older = Bytes()

    private struct Bytes {
        var start: UInt64 = 0
        var bytes: [UInt8] = []

        func part(_ offset: UInt64, _ count: UInt64) -> [UInt8]? {
            guard offset >= start, offset - start + count <= UInt64(bytes.count) else { return nil }
            return Array(bytes[Int(offset - start)...].prefix(Int(count)))
        }
    }

    /// Offsets in the file. Later bytes are never read.
    let bounds: Range<UInt64>

    /// - Parameter bounds: in the file. Nil for the whole file.
    init(_ source: SourceFile, _ bounds: Range<UInt64>? = nil) {
        (self.source, self.bounds) = (source, bounds ?? 0..<source.size)
    }

    /// Returns the box at an offset, or nil at the end.
    mutating func box(at offset: UInt64) throws(ViewError) -> Mp4TopBox? {
        guard offset < bounds.upperBound, bounds.upperBound - offset >= 8 else { return nil }
        let header = try bytes(at: offset, min(UInt64(Mp4TopBox.headerSize), bounds.upperBound - offset))
        guard let box = Mp4TopBox(header, at: offset, fileSize: bounds.upperBound) else {
            throw .malformed("there is no box at \(offset), where the one before ends: the file is damaged or cut")
        }
        return box
    }

    /// Returns the first box of one of these types from an offset on, at which a box begins. Nil without one.
    mutating func first(_ types: Set<Mp4Type>, from offset: UInt64) throws(ViewError) -> Mp4TopBox? {
        var next = offset
        for _ in 0..<Self.maximumWalk {
            guard let box = try box(at: next) else { return nil }
            if types.contains(box.type) { return box }
            next = box.bytes.upperBound
        }
        throw .malformed(
            "more than \(Self.maximumWalk) boxes, and no \(types.map(\.text).sorted().joined(separator: ", "))")
    }

    /// Returns all bytes of a `moov` or `moof`.
    mutating func contents(
        of type: Mp4Type, _ box: Range<UInt64>, _ budget: inout Mp4Budget
    ) throws(ViewError) -> Mp4Buffer {
        let size = box.upperBound - box.lowerBound
        guard size <= Mp4Movie.maximumSize else {
            throw .malformed(
                "the \(type.text) at \(box.lowerBound) has \(size) bytes, more than \(Mp4Movie.maximumSize >> 20) MiB")
        }
        guard box.upperBound <= bounds.upperBound else {
            throw .malformed(
                "the \(type.text) at \(box.lowerBound) has \(size) bytes, and the file ends before: it is cut")
        }
        try budget.reserve(Int(size))
        return Mp4Buffer(bytes: try bytes(at: box.lowerBound, size), start: box.lowerBound)
    }

    private mutating func bytes(at offset: UInt64, _ count: UInt64) throws(ViewError) -> [UInt8] {
        if let known = last.part(offset, count) ?? older.part(offset, count) { return known }
        guard count <= Self.size else { return try source.bytes(at: offset, Int(count)) }
        let size = max(count, min(UInt64(Self.size), bounds.upperBound - offset))
        let read = Bytes(start: offset, bytes: try source.bytes(at: offset, Int(size)))
        (older, last) = (last, read)
        return Array(read.bytes.prefix(Int(count)))
    }
}

extension SourceFile {
    /// Reads bytes of the file. Throws `.malformed` if the file ends before.
    func bytes(at offset: UInt64, _ count: Int) throws(ViewError) -> [UInt8] {
        guard offset <= size, UInt64(count) <= size - offset else {
            throw .malformed("the file ends after \(size) bytes, before \(count) bytes at \(offset)")
        }
        var bytes = [UInt8](repeating: 0, count: count)
        try bytes.withMutableBytes { (bytes) throws(ViewError) in try read(at: offset, into: bytes) }
        return bytes
    }
}
