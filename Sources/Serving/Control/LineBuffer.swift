internal import Glibc
internal import LinuxSystem

/// Bytes that arrive in pieces and leave as lines. Used memory is zeroed, because a line may hold a secret. One thread
/// at a time.
final class LineBuffer {
    /// The most bytes of a piece, and the size to which the memory shrinks after a long line.
    private static let pieceSize = 16 << 10

    let maximumLineSize: Int
    private(set) var storage = UnsafeMutableRawBufferPointer.allocate(byteCount: pieceSize, alignment: 1)
    /// The number of held bytes, at the front of `storage`.
    private(set) var count = 0
    /// The number of held bytes known to contain no LF, so that a long line is searched only once.
    private var searched = 0

    init(maximumLineSize: Int) { self.maximumLineSize = maximumLineSize }

    deinit {
        wipe(0...)
        storage.deallocate()
    }

    /// Lets `body` append bytes. Returns their number, which `body` returns.
    func fill<E>(_ body: (UnsafeMutableRawBufferPointer) throws(E) -> Int) throws(E) -> Int {
        if storage.count - count < Self.pieceSize { resize(to: 2 * storage.count) }
        let added = try body(storage.slice(count..<(count + Self.pieceSize)))
        count += added
        return added
    }

    /// Appends bytes from a socket (recv(2)). Returns their number, 0 at the end of the stream.
    /// - Throws: `.system` with errno.
    func receive(from socket: Descriptor) throws(StoreError) -> Int {
        try fill { (room) throws(StoreError) in
            try retrying { recv(socket.fd, room.baseAddress, room.count, 0) }
        }
    }

    /// Calls `body` with the next line, without its LF, then zeroes and removes it. Nil if the line is incomplete.
    /// - Throws: `requestTooLong`, and the error of `body`.
    func withNextLine<Result>(
        _ body: (UnsafeRawBufferPointer) throws(ControlFailure) -> Result
    ) throws(ControlFailure) -> Result? {
        let end = storage.baseAddress.flatMap { base in
            memchr(base + searched, Int32(UInt8(ascii: "\n")), count - searched).map {
                UnsafeMutableRawPointer($0) - base
            }
        }
        guard end ?? count <= maximumLineSize else {
            throw ControlFailure(.requestTooLong, "a request of over \(maximumLineSize) bytes")
        }
        guard let end else {
            searched = count
            return nil
        }
        defer { drop(end + 1) }
        return try body(UnsafeRawBufferPointer(storage.slice(..<end)))
    }

    /// Removes the first bytes. Little is moved, because at most one piece follows a line.
    private func drop(_ size: Int) {
        count -= size
        searched = 0
        storage.copyMemory(from: UnsafeRawBufferPointer(storage.slice(size..<(size + count))))
        wipe(count..<(count + size))
        if count == 0, storage.count > Self.pieceSize { resize(to: Self.pieceSize) }
    }

    private func resize(to size: Int) {
        let resized = UnsafeMutableRawBufferPointer.allocate(byteCount: size, alignment: 1)
        resized.copyMemory(from: UnsafeRawBufferPointer(storage.slice(..<count)))
        wipe(0...)
        storage.deallocate()
        storage = resized
    }

    /// Zeroes bytes with explicit_bzero(3), which the compiler cannot remove.
    private func wipe(_ range: some RangeExpression<Int>) {
        let bytes = storage.slice(range)
        if let base = bytes.baseAddress { explicit_bzero(base, bytes.count) }
    }
}
