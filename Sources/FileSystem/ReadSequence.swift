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
    /// Used by the thread that decrypts ahead: the end of what it has decrypted, and the number of pieces that came too late.
    private let done = Atomic<UInt64>(0)
    private let late = Atomic<Int>(0)

    package init() {}

    /// True if the cache may have what is read next.
    @inline(__always)
    package var isAhead: Bool { target.load(ordering: .relaxed) != 0 }

    /// Adds a read. Returns true if `next` has more to give from now on.
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

    private func restart(after count: Int) {
        inOrder.store(-count, ordering: .relaxed)
        target.store(0, ordering: .relaxed)
    }

    /// Decrypts nothing ahead of the next `pause` bytes.
    package func rest() { restart(after: Self.pause) }

    /// The offset at which the next piece begins that is to be decrypted. Nil if there is none. Only for the thread that
    /// decrypts ahead.
    package func next() -> UInt64? {
        let target = target.load(ordering: .relaxed)
        let position = position.load(ordering: .relaxed)
        var done = done.load(ordering: .relaxed)
        // After a read elsewhere.
        if done > target { done = position }
        guard target > 0, max(done, position) < target else { return nil }
        if done >= position {
            late.store(0, ordering: .relaxed)
            return done
        }
        // The program was faster.
        if late.add(1, ordering: .relaxed).newValue >= Self.mostLate {
            late.store(0, ordering: .relaxed)
            rest()
            return nil
        }
        return position
    }

    /// A piece is in the cache, up to `end`.
    package func finish(_ end: UInt64) { done.store(end, ordering: .relaxed) }
}

/// An open file of a ``FileSystem``.
package protocol OpenFile: AnyObject, Sendable {
    var sequence: ReadSequence { get }
}
