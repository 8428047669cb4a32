internal import CLinux
internal import FileSystem
package import Glibc
package import LinuxSystem
internal import Synchronization
internal import SystemPackage

/// What every request passes: whether the vault is locked, and who is inside. Any thread.
///
/// A worker marks its mark before it looks at the state; the lock controller changes the state before it looks at the
/// marks. So a request that saw "unlocked" is one that `drain` waits for.
package final class LockGate: Sendable {
    package enum State: UInt8, Sendable {
        case unlocked, locking, locked
    }

    /// One worker's place in the gate.
    package final class InFlight: Sendable {
        /// Odd while a request is inside. Only its worker moves it.
        fileprivate let steps = Atomic<UInt64>(0)
    }

    private let current = Atomic<UInt8>(State.unlocked.rawValue)
    private let unlockedOnce = Atomic<Bool>(true)
    private let marks = Monitor<[InFlight]>([])
    /// How many wait for requests to leave.
    private let drains = Atomic<Int>(0)
    private let lastActivity = Atomic<Int>(0)
    private let hasExpired = Atomic<Bool>(false)
    /// Milliseconds of CLOCK_MONOTONIC from which on the next activity is told.
    private let alarm = Atomic<Int>(.max)
    private let onAlarm = Mutex<(@Sendable () -> Void)?>(nil)
    let lockFileChecks: LockFileChecks?

    /// - Parameter options: the lock files in them are looked at by every request.
    package init(_ options: LockOptions = LockOptions()) {
        lockFileChecks = options.lockFiles.isEmpty ? nil : LockFileChecks(options)
        noteActivity()
    }

    package var state: State {
        guard let state = State(rawValue: current.load(ordering: .sequentiallyConsistent)) else {
            preconditionFailure("internal error: lock state")
        }
        return state
    }

    /// Whether a class that works from the first unlock on does.
    package var hasBeenUnlocked: Bool { unlockedOnce.load(ordering: .acquiring) }

    /// Called by the lock controller alone.
    package func enter(_ state: State) {
        if state == .unlocked { unlockedOnce.store(true, ordering: .releasing) }
        current.store(state.rawValue, ordering: .sequentiallyConsistent)
    }

    /// Before the first request, for a vault that is locked when it is mounted.
    package func beLockedFromTheStart() {
        unlockedOnce.store(false, ordering: .releasing)
        enter(.locked)
    }

    /// Whether a request may do anything: asked by each, with a look at the signs of its own (the watch may be late).
    @inline(__always)
    package func isUnlocked() -> Bool {
        guard current.load(ordering: .sequentiallyConsistent) == State.unlocked.rawValue else { return false }
        return lockFileChecks?.letPass() ?? true
    }

    /// What a refused request is told: `ENOKEY`, or `EKEYEXPIRED`.
    package var refusal: StoreError { isExpired ? .expired : .locked }

    /// Whether the right to open the vault has ended: then a lock leaves no class open.
    package var isExpired: Bool { hasExpired.load(ordering: .acquiring) }

    /// Called by the lock controller alone.
    func setExpired(_ expired: Bool) {
        hasExpired.store(expired, ordering: .releasing)
    }

    // MARK: Who is inside

    /// A mark for a worker's thread.
    package func register() -> InFlight {
        let inFlight = InFlight()
        marks.update { $0.append(inFlight) }
        return inFlight
    }

    package func unregister(_ inFlight: InFlight) {
        leave(inFlight)
        marks.update { $0.removeAll { $0 === inFlight } }
    }

    /// A request begins.
    @inline(__always)
    package func enter(_ inFlight: InFlight) {
        inFlight.steps.store(inFlight.steps.load(ordering: .relaxed) | 1, ordering: .sequentiallyConsistent)
    }

    /// A request has been answered, or is one that the lock need not wait for. Again: nothing.
    @inline(__always)
    package func leave(_ inFlight: InFlight) {
        let steps = inFlight.steps.load(ordering: .relaxed)
        guard steps & 1 == 1 else { return }
        inFlight.steps.store(steps + 1, ordering: .sequentiallyConsistent)
        if drains.load(ordering: .sequentiallyConsistent) > 0 { marks.update { _ in } }
    }

    /// Waits until every request that is inside now has left, or until the deadline, of CLOCK_MONOTONIC.
    /// - Returns: how many are still inside.
    @discardableResult
    package func drain(until deadline: timespec? = nil) -> Int {
        drains.add(1, ordering: .sequentiallyConsistent)
        defer { drains.subtract(1, ordering: .sequentiallyConsistent) }
        let inside = marks.update { marks in
            marks.map { ($0, $0.steps.load(ordering: .sequentiallyConsistent)) }.filter { $0.1 & 1 == 1 }
        }
        let left = { @Sendable in
            inside.filter { $0.0.steps.load(ordering: .sequentiallyConsistent) == $0.1 }.count
        }
        if let deadline {
            _ = marks.wait(until: deadline) { _ in left() == 0 ? () : nil }
        } else {
            marks.wait { _ in left() == 0 ? () : nil }
        }
        return left()
    }

    // MARK: Idleness

    /// Somebody uses the mount.
    @inline(__always)
    package func noteActivity() {
        var now = timespec()
        // A tick old at most (clock_gettime(2)), and a tenth of the cost.
        clock_gettime(CLOCK_MONOTONIC_COARSE, &now)
        let milliseconds = now.tv_sec * 1000 + now.tv_nsec / 1_000_000
        lastActivity.store(milliseconds, ordering: .relaxed)
        if milliseconds >= alarm.load(ordering: .relaxed) { ring() }
    }

    /// Has `body` called at the first activity after so many milliseconds, on the thread of a request; not at all without one.
    func callAtActivity(after milliseconds: Int, _ body: @escaping @Sendable () -> Void) {
        onAlarm.withLock { $0 = body }
        alarm.store(monotonicMilliseconds() + milliseconds, ordering: .releasing)
    }

    private func ring() {
        guard alarm.exchange(.max, ordering: .acquiringAndReleasing) != .max else { return }
        onAlarm.withLock { $0 }?()
    }

    /// Milliseconds of CLOCK_MONOTONIC at which the last request came.
    var lastActivityMilliseconds: Int { lastActivity.load(ordering: .relaxed) }
}
