internal import Glibc

/// Bytes that arrive in pieces and leave as lines. A line may hold a secret, so memory is zeroed once it is no longer
/// needed. One thread at a time.
final class LineBuffer {
    enum Failure: Error, Equatable {
        case lineTooLong
    }

    /// Room for the next piece, and the memory kept between long lines, in bytes.
    private static let pieceSize = 16 << 10

    let maximumLineSize: Int
    private var storage = WipedStorage(capacity: 0)
    /// The part of `storage` in use.
    private var held = 0..<0
    /// The number of held bytes that contain no LF, so that a long line is searched only once.
    private var searched = 0

    init(maximumLineSize: Int) {
        self.maximumLineSize = maximumLineSize
    }

    /// The number of bytes held.
    var count: Int { held.count }

    /// True while an incomplete line is held.
    var isHoldingPart: Bool { !held.isEmpty }

    /// Lets `body` append bytes. Returns its result: the number of bytes, or a negative number for an error.
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

    /// Calls `body` with the next line, without its LF, and then zeroes it. Nil if no line is complete.
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

    /// Makes room for `size` more bytes: moves the held bytes to the front, or doubles the memory.
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

/// Memory that is zeroed before it is freed. One thread at a time.
final class WipedStorage {
    let buffer: UnsafeMutableRawBufferPointer

    init(capacity: Int) {
        buffer = .allocate(byteCount: capacity, alignment: 1)
        buffer.initializeMemory(as: UInt8.self, repeating: 0)
    }

    deinit {
        wipe(0..<buffer.count)
        buffer.deallocate()
    }

    /// explicit_bzero(3): the compiler cannot remove it.
    func wipe(_ range: Range<Int>) {
        guard let base = buffer.baseAddress else { return }
        explicit_bzero(base + range.lowerBound, range.count)
    }

    /// memmove(3) of `range` to the front.
    func moveToFront(_ range: Range<Int>) {
        guard let base = buffer.baseAddress else { return }
        memmove(base, base + range.lowerBound, range.count)
        wipe(range.count..<range.upperBound)
    }
}
