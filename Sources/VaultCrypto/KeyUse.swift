internal import Glibc
internal import Synchronization

/// Counts who is using a key right now, so that it is forgotten only when nobody is, and used by nobody afterwards.
///
/// One atomic addition to enter and one to leave. Any thread; ``close()`` and ``reopen()`` are for one thread at a time.
struct KeyUse: ~Copyable {
    /// Set while the key is forgotten; below it, the number of users.
    private static let closed: UInt64 = 1 << 63
    private let state = Atomic<UInt64>(0)

    var isClosed: Bool { state.load(ordering: .acquiring) & Self.closed != 0 }

    /// False where the key is forgotten; otherwise it is not before ``leave()``.
    func enter() -> Bool {
        if state.add(1, ordering: .acquiring).newValue & Self.closed == 0 { return true }
        leave()
        return false
    }

    func leave() {
        state.subtract(1, ordering: .releasing)
    }

    /// Refuses users from now on and waits for those within: microseconds, since none of them waits for anything.
    func close() {
        state.bitwiseOr(Self.closed, ordering: .acquiringAndReleasing)
        while state.load(ordering: .acquiring) != Self.closed { sched_yield() }
    }

    func reopen() {
        state.bitwiseAnd(~Self.closed, ordering: .releasing)
    }
}
