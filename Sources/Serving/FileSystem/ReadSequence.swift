internal import Synchronization

/// The reads of an open file, and the part of it that is decrypted ahead of them. It begins when reads have followed each
/// other for a while, and ends with the first read elsewhere. The kernel may send the requests of one program in any order.
/// Offsets are those of the plaintext, in bytes. Any thread.
package final class ReadSequence: Sendable {
    private struct State {
        /// End of the latest read, and bytes read in order up to there.
        var position: UInt64 = 0
        var inOrder = 0
        /// End of what is wanted in the cache. 0 if nothing is.
        var target: UInt64 = 0
        /// End of what was decrypted ahead. `.max` at the end of the file.
        var done: UInt64 = 0
        /// Number of pieces in a row that came too late.
        var late = 0
        /// Number of reads elsewhere.
        var beginnings: UInt64 = 0
    }

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

    private let state = Mutex(State())
    private let isWanted = Atomic<Bool>(false)

    package init() {}

    /// True if the cache may have what is read next.
    @inline(__always)
    package var isAhead: Bool { isWanted.load(ordering: .relaxed) }

    /// Adds a read. Returns true if more is wanted in the cache from now on.
    /// - Parameter cacheSize: of the block cache, in bytes.
    package func add(at offset: UInt64, count: Int, cacheSize: Int) -> Bool {
        let end = offset + UInt64(count)
        return state.withLock { state in
            guard offset <= state.position + Self.slack, end + Self.slack >= state.position else {
                state = State(position: end, beginnings: state.beginnings + 1)
                isWanted.store(false, ordering: .relaxed)
                return false
            }
            // A part that is read again is no progress.
            if end > state.position {
                state.inOrder += Int(end - state.position)
                state.position = end
            }
            guard state.inOrder >= Self.start else { return false }
            let window = UInt64(min(Self.largestWindow, cacheSize / Self.shareOfCache, state.inOrder))
            // Once for each half of a window.
            guard window >= Self.start, state.target < end + window / 2 else { return false }
            state.target = end + window
            isWanted.store(true, ordering: .relaxed)
            return state.done < state.target
        }
    }

    /// Decrypts the next piece, if one is wanted. For the thread that decrypts ahead.
    /// - Parameter decrypt: gets the offset at which the piece begins. Returns its end, `.max` at the end of the file, or nil
    ///   if the file cannot be read now.
    /// - Returns: true if there may be another piece.
    package func decryptNext(_ decrypt: (UInt64) -> UInt64?) -> Bool {
        let next = state.withLock { state -> (start: UInt64, beginnings: UInt64)? in
            let start = max(state.done, state.position)
            guard start < state.target else { return nil }
            // The first piece begins at the position, too.
            state.late = state.done > 0 && state.done < state.position ? state.late + 1 : 0
            if state.late >= Self.mostLate {
                rest(&state)
                return nil
            }
            return (start, state.beginnings)
        }
        guard let next else { return false }
        let end = decrypt(next.start)
        return state.withLock { state in
            // After a read elsewhere, the piece is of no use.
            guard state.beginnings == next.beginnings else { return true }
            guard let end, end > next.start else {
                rest(&state)
                return false
            }
            state.done = end
            return true
        }
    }

    /// Wants nothing before `pause` more bytes have been read in order.
    private func rest(_ state: inout State) {
        (state.inOrder, state.target, state.done, state.late) = (-Self.pause, 0, 0, 0)
        isWanted.store(false, ordering: .relaxed)
    }
}

/// An open file of a ``FileSystem``.
package protocol OpenFile: AnyObject, Sendable {
    var sequence: ReadSequence { get }
}
