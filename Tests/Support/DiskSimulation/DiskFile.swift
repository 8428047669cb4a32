/// The contents of a file on a simulated disk.
struct DiskFile: Sendable {
    static let pageSize = 4096

    private(set) var size = 0
    /// The written pages, by number. The others are holes. Bytes past the size are zero.
    private(set) var pages: [Int: [UInt8]] = [:]

    /// Returns true if the two files read the same.
    func hasSameContent(as other: DiskFile) -> Bool {
        let zeros = [UInt8](repeating: 0, count: Self.pageSize)
        return size == other.size
            && Set(pages.keys).union(other.pages.keys).allSatisfy { pages[$0] ?? zeros == other.pages[$0] ?? zeros }
    }

    /// Changes the size. Bytes that were cut off read as zeros if the file grows again.
    mutating func resize(to newSize: Int) {
        if newSize < size {
            let firstGone = (newSize + Self.pageSize - 1) / Self.pageSize
            pages = pages.filter { $0.key < firstGone }
            zero(newSize..<(firstGone * Self.pageSize)) { _ in true }
        }
        size = newSize
    }

    /// Writes the bytes inside the size.
    /// - Parameter isWritten: called with each piece's offset in the file. Returns false if the disk does not get it.
    mutating func write(_ bytes: [UInt8], at offset: Int, pieceSize: Int, isWritten: (Int) -> Bool) {
        bytes.withUnsafeBytes { bytes in
            Self.forPieces(of: offset..<max(offset, min(size, offset + bytes.count)), pieceSize) { piece in
                guard isWritten(piece.lowerBound / pieceSize * pieceSize) else { return }
                change(piece, makingPage: true) { part in
                    part.copyMemory(
                        from: UnsafeRawBufferPointer(
                            rebasing: bytes[(piece.lowerBound - offset)..<(piece.upperBound - offset)]))
                }
            }
        }
    }

    /// Makes the pages of a range holes, and writes zeros to the parts of pages at its ends.
    mutating func punch(_ range: Range<Int>) {
        let inner = Self.wholePages(in: range)
        pages = pages.filter { !inner.contains($0.key * Self.pageSize) }
        zero(Self.edges(of: range)[0]) { _ in true }
        zero(Self.edges(of: range)[1]) { _ in true }
    }

    /// Writes zeros to a range, except to its holes.
    mutating func zero(_ range: Range<Int>, pieceSize: Int = pageSize, isWritten: (Int) -> Bool) {
        Self.forPieces(of: range, pieceSize) { piece in
            guard isWritten(piece.lowerBound / pieceSize * pieceSize) else { return }
            change(piece, makingPage: false) { part in _ = part.initializeMemory(as: UInt8.self, repeating: 0) }
        }
    }

    /// Returns the bytes of all whole pages in a range.
    static func wholePages(in range: Range<Int>) -> Range<Int> {
        let start = (range.lowerBound + pageSize - 1) / pageSize * pageSize
        return start..<max(start, range.upperBound / pageSize * pageSize)
    }

    /// Returns the parts of a range before and after its whole pages.
    static func edges(of range: Range<Int>) -> [Range<Int>] {
        let inner = wholePages(in: range)
        guard !inner.isEmpty else { return [range, range.upperBound..<range.upperBound] }
        return [range.lowerBound..<inner.lowerBound, inner.upperBound..<range.upperBound]
    }

    private static func forPieces(of range: Range<Int>, _ pieceSize: Int, _ body: (Range<Int>) -> Void) {
        var position = range.lowerBound
        while position < range.upperBound {
            let end = min(range.upperBound, (position / pieceSize + 1) * pieceSize)
            body(position..<end)
            position = end
        }
    }

    private mutating func change(_ range: Range<Int>, makingPage: Bool, _ body: (UnsafeMutableRawBufferPointer) -> Void)
    {
        let page = range.lowerBound / Self.pageSize
        if pages[page] == nil && !makingPage { return }
        let start = range.lowerBound % Self.pageSize
        pages[page, default: [UInt8](repeating: 0, count: Self.pageSize)].withUnsafeMutableBytes { bytes in
            body(UnsafeMutableRawBufferPointer(rebasing: bytes[start..<(start + range.count)]))
        }
    }
}
