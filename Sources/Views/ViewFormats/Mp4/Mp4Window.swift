internal import LinuxSystem

/// A box of a file's top level.
struct Mp4TopBox: Sendable {
    let type: Mp4Type
    let bytes: Range<UInt64>
    /// Size of the header, in bytes.
    let headerSize: Int

    /// Bytes that are read to find a header.
    static let headerSize = 16

    /// Nil if the header's bytes are not a box's.
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
            // To the end of the file.
            size = fileSize - start
        }
        let (end, overflow) = start.addingReportingOverflow(size)
        guard size >= UInt64(headerSize), !overflow, end <= UInt64(Int64.max) else { return nil }
        self.headerSize = headerSize
        bytes = start..<end
    }
}

/// Reads boxes of a file's top level, several with one pread(2) if they are near. One thread at a time.
struct Mp4Window: Sendable {
    /// The `moof` of a few seconds and the header after it.
    private static let size = 8192

    let source: SourceFile
    private var start: UInt64 = 0
    private var window: [UInt8] = []

    init(_ source: SourceFile) { self.source = source }

    /// The box at an offset. Nil at the end of the file.
    mutating func box(at offset: UInt64) throws(ViewError) -> Mp4TopBox? {
        guard offset < source.size, source.size - offset >= 8 else { return nil }
        let header = try bytes(at: offset, min(UInt64(Mp4TopBox.headerSize), source.size - offset))
        guard let box = Mp4TopBox(header, at: offset, fileSize: source.size) else {
            throw .malformed("there is no box at \(offset), where the one before ends: the file is damaged or cut")
        }
        return box
    }

    /// All bytes of a `moov` or `moof`.
    mutating func contents(of box: Mp4TopBox) throws(ViewError) -> [UInt8] {
        let size = box.bytes.upperBound - box.bytes.lowerBound
        guard size <= Mp4Movie.maximumSize else {
            throw .malformed(
                "the \(box.type.text) at \(box.bytes.lowerBound) has \(size) bytes, more than "
                    + "\(Mp4Movie.maximumSize >> 20) MiB")
        }
        return try bytes(at: box.bytes.lowerBound, size)
    }

    private mutating func bytes(at offset: UInt64, _ count: UInt64) throws(ViewError) -> [UInt8] {
        let end = start + UInt64(window.count)
        if offset < start || offset + count > end {
            guard count <= Self.size else { return try source.bytes(at: offset, Int(count)) }
            window = try source.bytes(at: offset, Int(max(count, min(UInt64(Self.size), source.size - offset))))
            start = offset
        }
        let first = Int(offset - start)
        return Array(window[first..<(first + Int(count))])
    }
}

extension SourceFile {
    /// Bytes of the file. Throws `.malformed` if it ends before.
    func bytes(at offset: UInt64, _ count: Int) throws(ViewError) -> [UInt8] {
        guard offset <= size, UInt64(count) <= size - offset else {
            throw .malformed("the file ends after \(size) bytes, before \(count) bytes at \(offset)")
        }
        var bytes = [UInt8](repeating: 0, count: count)
        try bytes.withMutableBytes { (bytes) throws(ViewError) in try read(at: offset, into: bytes) }
        return bytes
    }
}
