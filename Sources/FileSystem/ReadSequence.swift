internal import Synchronization

/// The reads of an open file, and the part of it that is decrypted ahead of them. It begins when reads have followed each
/// other for a while, and ends with the first read elsewhere. The kernel may send the requests of one program in any order.
/// Offsets are those of the plaintext, in bytes. Any thread.
package final class ReadSequence: Sendable {
    /// Bytes that must be read in order before anything is decrypted ahead.
    private static let start = 256 << 10
    /// The largest distance from the end of the latest read at which a read is still in order.
    private static let slack: UInt64 = 512 << 10
    private static let largestWindow = 2 << 20
    /// The part of the block cache that one window may fill.
    private static let shareOfCache = 8
    /// Bytes that are read without help after it came too late.
    private static let pause = 32 << 20
    /// Number of pieces in a row that came too late, before a pause.
    private static let mostLate = 4

    /// End of the latest read, and bytes read in order up to there.
    private let position = Atomic<UInt64>(0)
    private let inOrder = Atomic<Int>(0)
    /// End of what is wanted in the cache. 0 if nothing is.
    private let target = Atomic<UInt64>(0)
    /// End of what was decrypted ahead. 0 after a read elsewhere.
    private let done = Atomic<UInt64>(0)
    /// Number of pieces in a row that came too late.
    private let late = Atomic<Int>(0)

    package init() {}

    /// True if the cache may have what is read next.
    @inline(__always)
    package var isAhead: Bool { target.load(ordering: .relaxed) != 0 }

    /// Adds a read. Returns true if more is wanted in the cache from now on.
    /// - Parameter cacheSize: of the block cache, in bytes.
    package func add(at offset: UInt64, count: Int, cacheSize: Int) -> Bool {
        let last = position.load(ordering: .relaxed)
        let end = offset + UInt64(count)
        guard offset <= last + Self.slack, end + Self.slack >= last else {
            position.store(end, ordering: .relaxed)
            restart(after: 0)
            return false
        }
        if end > last { position.store(end, ordering: .relaxed) }
        let run = inOrder.add(count, ordering: .relaxed).newValue
        guard run >= Self.start else { return false }
        let window = UInt64(min(Self.largestWindow, cacheSize / Self.shareOfCache, run))
        // Once for each half of a window.
        guard window >= Self.start, target.load(ordering: .relaxed) < end + window / 2 else { return false }
        target.store(end + window, ordering: .relaxed)
        return true
    }

    /// Begins anew, and wants nothing before `count` more bytes have been read in order.
    private func restart(after count: Int) {
        inOrder.store(-count, ordering: .relaxed)
        target.store(0, ordering: .relaxed)
        done.store(0, ordering: .relaxed)
    }

    /// Decrypts the next piece, if one is wanted. For the thread that decrypts ahead.
    /// - Parameter decrypt: gets the offset at which the piece begins. Returns its end, or nil at the end of the file.
    /// - Returns: true if there may be another piece.
    package func decryptNext(_ decrypt: (UInt64) -> UInt64?) -> Bool {
        let position = position.load(ordering: .relaxed)
        let before = done.load(ordering: .relaxed)
        let start = max(before, position)
        guard start < target.load(ordering: .relaxed) else { return false }
        // The first piece begins at the position, too.
        if before > 0, before < position {
            guard late.add(1, ordering: .relaxed).newValue < Self.mostLate else {
                late.store(0, ordering: .relaxed)
                restart(after: Self.pause)
                return false
            }
        } else {
            late.store(0, ordering: .relaxed)
        }
        guard let end = decrypt(start), end > start else {
            restart(after: Self.pause)
            return false
        }
        // Not after a read elsewhere meanwhile.
        _ = done.compareExchange(expected: before, desired: end, ordering: .relaxed)
        return true
    }
}

/// An open file of a ``FileSystem``.
package protocol OpenFile: AnyObject, Sendable {
    var sequence: ReadSequence { get }
}
