internal import Synchronization

/// The reads of an open file, and the part decrypted ahead of them. Decryption ahead begins when reads have followed
/// each other for a while, and ends with the first read elsewhere. The kernel may send one program's requests in any
/// order. Offsets are those of the plaintext, in bytes. Any thread.
package final class ReadSequence: Sendable {
    private struct State {
        /// The end of the latest read, and the bytes read in order up to there.
        var position: UInt64 = 0
        var inOrder = 0
        /// The end of the part wanted in the cache. 0 if none is wanted.
        var target: UInt64 = 0
        /// The end of the part decrypted ahead. `.max` at the end of the file.
        var done: UInt64 = 0
        /// The number of pieces in a row that came too late.
        var late = 0
        /// The number of reads elsewhere.
        var beginnings: UInt64 = 0
    }

    /// The bytes to be read in order before decryption ahead begins.
    private static let start = 256 << 10
    /// The largest distance from the end of the latest read at which a read is still in order.
    private static let slack: UInt64 = 512 << 10
    private static let largestWindow = 2 << 20
    /// The share of the block cache for one window: an eighth.
    private static let shareOfCache = 8
    /// The bytes read without help after the help came too late.
    private static let pause = 32 << 20
    /// The number of late pieces in a row before a pause.
    private static let mostLate = 4

    private let state = Mutex(State())
    private let isWanted = Atomic<Bool>(false)

    package init() {}

    /// True if the cache may contain the data of the next read.
    @inline(__always)
    package var isAhead: Bool { isWanted.load(ordering: .relaxed) }

    /// Adds a read. Returns true if more is wanted in the cache from now on.
    /// - Parameter cacheSize: the size of the block cache, in bytes.
    package func add(at offset: UInt64, count: Int, cacheSize: Int) -> Bool {
        let end = offset + UInt64(count)
        return state.withLock { state in
            guard offset <= state.position + Self.slack, end + Self.slack >= state.position else {
                state = State(position: end, beginnings: state.beginnings + 1)
                isWanted.store(false, ordering: .relaxed)
                return false
            }
            // A part read again is no progress.
            if end > state.position {
                state.inOrder += Int(end - state.position)
                state.position = end
            }
            guard state.inOrder >= Self.start else { return false }
            let window = UInt64(min(Self.largestWindow, cacheSize / Self.shareOfCache, state.inOrder))
            // Ask for more only once for each half of a window.
            guard window >= Self.start, state.target < end + window / 2 else { return false }
            state.target = end + window
            isWanted.store(true, ordering: .relaxed)
            return state.done < state.target
        }
    }

    /// Decrypts the next piece, if one is wanted. Called by the thread that decrypts ahead.
    /// - Parameter decrypt: called with the offset at which the piece begins. Returns its end, `.max` at the end of the
    ///   file, or nil if the file cannot be read now.
    /// - Returns: true if there may be another piece.
    package func decryptNext(_ decrypt: (UInt64) -> UInt64?) -> Bool {
        let next = state.withLock { state -> (start: UInt64, beginnings: UInt64)? in
            let start = max(state.done, state.position)
            guard start < state.target else { return nil }
            // A piece is late if reads have passed the end of the previous one. The first piece has none.
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
            // After a read elsewhere, the piece is useless.
            guard state.beginnings == next.beginnings else { return true }
            guard let end, end > next.start else {
                rest(&state)
                return false
            }
            state.done = end
            return true
        }
    }

    /// Stops decryption ahead until `pause` more bytes have been read in order.
    private func rest(_ state: inout State) {
        (state.inOrder, state.target, state.done, state.late) = (-Self.pause, 0, 0, 0)
        isWanted.store(false, ordering: .relaxed)
    }
}

/// An open file of a ``FileSystem``.
package protocol OpenFile: AnyObject, Sendable {
    var sequence: ReadSequence { get }
}
