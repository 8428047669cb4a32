internal import Glibc
internal import Synchronization

/// Counts the users of a key, so that it is forgotten only without users, and not used afterwards.
///
/// One atomic addition to enter and one to leave. Any thread. ``close()`` and ``reopen()``: one thread at a time.
struct KeyUse: ~Copyable {
    /// The bit set while the key is forgotten. The bits below it count the users.
    private static let closed: UInt64 = 1 << 63
    private let state = Atomic<UInt64>(0)

    var isClosed: Bool { state.load(ordering: .acquiring) & Self.closed != 0 }

    /// Returns false if the key is forgotten. Otherwise the key stays until ``leave()``.
    func enter() -> Bool {
        if state.add(1, ordering: .acquiring).newValue & Self.closed == 0 { return true }
        leave()
        return false
    }

    func leave() { state.subtract(1, ordering: .releasing) }

    /// Refuses users from now on and waits for the current ones: microseconds, because they never wait themselves.
    func close() {
        state.bitwiseOr(Self.closed, ordering: .acquiringAndReleasing)
        while state.load(ordering: .acquiring) != Self.closed { sched_yield() }
    }

    func reopen() { state.bitwiseAnd(~Self.closed, ordering: .releasing) }
}
