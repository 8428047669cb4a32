
/// Bytes that arrive in pieces, taken out as lines. A line may hold a secret: what was taken, and what is outgrown, is
/// zeroed. One thread at a time.
final class LineBuffer {
    enum Failure: Error, Equatable {
        /// More bytes without an end of line than allowed.
        case lineTooLong
    }

    /// Room for the next piece, and what is kept while no long line is under way, in bytes.
    private static let pieceSize = 16 << 10

    let maximumLineSize: Int
    private var storage = WipedStorage(capacity: 0)
    /// The bytes held.
    private var held = 0..<0
    /// Bytes known to hold no end of line, so that a slow giant line is not searched again and again.
    private var searched = 0

    init(maximumLineSize: Int) {
        self.maximumLineSize = maximumLineSize
    }

    /// How many bytes are held.
    var count: Int { held.count }

    /// True while an incomplete line is held.
    var isHoldingPart: Bool { !held.isEmpty }

    /// Lets `body` put bytes behind those there; it returns how many, or a negative number, which is handed on.
    func fill(_ body: (UnsafeMutableRawBufferPointer) -> Int) -> Int {
        makeRoom(Self.pieceSize)
        let count = body(UnsafeMutableRawBufferPointer(rebasing: storage.buffer[held.upperBound...]))
        if count > 0 { held = held.lowerBound..<(held.upperBound + count) }
        return count
    }

    func append(_ piece: [UInt8]) {
        makeRoom(piece.count)
        UnsafeMutableRawBufferPointer(rebasing: storage.buffer[held.upperBound...]).copyBytes(from: piece)
        held = held.lowerBound..<(held.upperBound + piece.count)
    }

    /// Calls `body` with the next line, without its LF, and zeroes it then; nil where there is none yet.
    func takeLine<Result>(_ body: (UnsafeRawBufferPointer) -> Result) throws(Failure) -> Result? {
        let unsearched = UnsafeRawBufferPointer(rebasing: storage.buffer[held].dropFirst(searched))
        guard let index = unsearched.firstIndex(of: UInt8(ascii: "\n")) else {
            searched = held.count
            guard held.count <= maximumLineSize else { throw .lineTooLong }
            return nil
        }
        let size = searched + index
        guard size <= maximumLineSize else { throw .lineTooLong }
        let line = held.lowerBound..<(held.lowerBound + size)
        defer { drop(line.lowerBound..<(line.upperBound + 1)) }
        return body(UnsafeRawBufferPointer(rebasing: storage.buffer[line]))
    }

    private func drop(_ range: Range<Int>) {
        storage.wipe(range)
        held = range.upperBound..<held.upperBound
        searched = 0
        guard held.isEmpty else { return }
        held = 0..<0
        if storage.buffer.count > Self.pieceSize { storage = WipedStorage(capacity: 0) }
    }

    /// Makes room for `size` more bytes: moves those held to the front, or to twice the memory.
    private func makeRoom(_ size: Int) {
        if storage.buffer.count - held.upperBound >= size { return }
        if held.lowerBound > 0, storage.buffer.count - held.count >= size {
            storage.moveToFront(held)
        } else {
            let larger = WipedStorage(capacity: max(2 * storage.buffer.count, held.count + size))
            larger.buffer.copyMemory(from: UnsafeRawBufferPointer(rebasing: storage.buffer[held]))
            storage = larger
        }
        held = 0..<held.count
    }
}
