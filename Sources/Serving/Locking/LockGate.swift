internal import Glibc
package import LinuxSystem
internal import Synchronization

/// The gate for all requests. It holds the lock state and knows which requests are in progress. Any thread.
///
/// A worker sets its `InFlight` mark before it reads the state. The lock thread changes the state before it reads the
/// marks. So `drain` waits for every request that has seen "unlocked".
package final class LockGate: Sendable {
    package enum State: UInt8, Sendable {
        case unlocked, locking, locked
        /// An unlock has begun: all write requests pass from now on, but the others are still refused.
        case opening
        /// The same without a lock before it: a lock file disappeared before the lock thread saw it, so requests were
        /// refused, but nothing was wiped.
        case reopening

        /// The name in `status`. "locked" promises that memory is purged.
        var text: String {
            switch self {
            case .opening: "locked"
            case .reopening: "unlocked"
            case .unlocked, .locking, .locked: "\(self)"
            }
        }
    }

    /// One worker's mark, set while a request is in progress.
    package final class InFlight: Sendable {
        /// Odd while a request is in progress. Only its worker changes it.
        fileprivate let steps = Atomic<UInt64>(0)
    }

    private let current = Atomic<UInt8>(State.unlocked.rawValue)
    private let unlockedOnce = Atomic<Bool>(true)
    private let marks = Monitor<[InFlight]>([])
    /// The number of `drain` calls in progress.
    private let drains = Atomic<Int>(0)
    private let lastActivity = Atomic<Int>(0)
    private let hasExpired = Atomic<Bool>(false)
    /// A time in milliseconds of CLOCK_MONOTONIC. The first activity after it calls `onAlarm`.
    private let alarm = Atomic<Int>(.max)
    private let onAlarm = Observer<Void>()
    /// The lock files, which every request checks.
    package let lockFiles: LockFiles
    /// True if there is a grace, in which requests pass until the lock thread locks.
    private let letsPassInGrace: Bool
    private let onSighting = Observer<Void>()
    /// True from the first sighting of a lock file until the lock thread has checked it, and locks or reopens the gate.
    private let isSighted = Atomic<Bool>(false)

    package init(_ options: LockOptions = LockOptions()) {
        lockFiles = LockFiles(options.lockFiles)
        letsPassInGrace = options.graceMilliseconds > 0
        markActivity()
    }

    package var state: State {
        guard let state = State(rawValue: current.load(ordering: .sequentiallyConsistent)) else {
            preconditionFailure("internal error: lock state")
        }
        return state
    }

    /// True once the vault has been unlocked, so that the class `until-first-unlock` is available.
    package var hasBeenUnlocked: Bool { unlockedOnce.load(ordering: .acquiring) }

    /// Sets the state. Called only by the lock controller.
    package func enter(_ state: State) {
        switch state {
        case .unlocked: unlockedOnce.store(true, ordering: .releasing)
        case .opening, .reopening, .locking: isSighted.store(false, ordering: .sequentiallyConsistent)
        case .locked: break
        }
        current.store(state.rawValue, ordering: .sequentiallyConsistent)
    }

    /// Locks the vault at the mount. Call it before the first request.
    package func beLockedFromTheStart() {
        unlockedOnce.store(false, ordering: .releasing)
        enter(.locked)
    }

    /// Returns true if a request may proceed. Also checks the lock files, because the watch may be late.
    @inline(__always)
    package func isUnlocked() -> Bool {
        guard current.load(ordering: .sequentiallyConsistent) == State.unlocked.rawValue else { return false }
        return lockFiles.all.isEmpty || lockFilesLetPass()
    }

    /// Returns true if a write request may proceed, either as `isUnlocked` says, or because an unlock has begun.
    package func admitsWrites() -> Bool {
        guard state == .opening || state == .reopening else { return isUnlocked() }
        return lockFiles.all.isEmpty || lockFilesLetPass()
    }

    /// The error for a refused request: `ENOKEY`, or `EKEYEXPIRED`.
    package var refusal: StoreError { isExpired ? .expired : .locked }

    /// True if the lease has ended. Then a lock leaves no class available.
    package var isExpired: Bool { hasExpired.load(ordering: .acquiring) }

    /// Called only by the lock controller.
    func setExpired(_ expired: Bool) { hasExpired.store(expired, ordering: .releasing) }

    // MARK: Lock files

    /// Checks every file, until one is found. Returns true if a request may pass. Allocates nothing.
    private func lockFilesLetPass() -> Bool {
        if !isSighted.load(ordering: .sequentiallyConsistent) {
            guard lockFiles.doLock else { return true }
            if !isSighted.exchange(true, ordering: .sequentiallyConsistent) { onSighting.notify() }
        }
        return letsPassInGrace
    }

    /// Returns true if requests are refused because of a former lock file, so that the gate must be opened as at an
    /// unlock. Called by the lock controller when all lock files are absent.
    func refusesForNothing() -> Bool {
        if letsPassInGrace { isSighted.store(false, ordering: .sequentiallyConsistent) }
        return isSighted.load(ordering: .sequentiallyConsistent)
    }

    /// Sets the function to call when a request finds a lock file.
    func whenSighted(_ body: @escaping @Sendable () -> Void) { onSighting.set(body) }

    /// Returns the files that lock now, and their states.
    func lockingFiles() -> [(file: LockFile, state: LockFileState)] {
        lockFiles.all.map { ($0, $0.check()) }.filter { $0.1.isLocked }
    }

    // MARK: Requests in progress

    /// Returns a mark for a worker thread.
    package func register() -> InFlight {
        let inFlight = InFlight()
        marks.update { $0.append(inFlight) }
        return inFlight
    }

    package func unregister(_ inFlight: InFlight) {
        leave(inFlight)
        marks.update { $0.removeAll { $0 === inFlight } }
    }

    /// Marks the start of a request.
    @inline(__always)
    package func enter(_ inFlight: InFlight) {
        inFlight.steps.store(inFlight.steps.load(ordering: .relaxed) | 1, ordering: .sequentiallyConsistent)
    }

    /// Marks the end of a request, or of a lock's need to wait for it. May be called twice.
    @inline(__always)
    package func leave(_ inFlight: InFlight) {
        let steps = inFlight.steps.load(ordering: .relaxed)
        guard steps & 1 == 1 else { return }
        inFlight.steps.store(steps + 1, ordering: .sequentiallyConsistent)
        if drains.load(ordering: .sequentiallyConsistent) > 0 { marks.update { _ in } }
    }

    /// Waits until every request in progress has left, or until the deadline.
    /// - Returns: the number of requests still inside.
    @discardableResult
    package func drain(until deadline: ContinuousClock.Instant? = nil) -> Int {
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

    /// Marks the mount as used.
    @inline(__always)
    package func markActivity() {
        // This clock is at most a tick late (clock_gettime(2)), at a tenth of the cost.
        let milliseconds = nanoseconds(of: CLOCK_MONOTONIC_COARSE) / 1_000_000
        lastActivity.store(milliseconds, ordering: .relaxed)
        if milliseconds >= alarm.load(ordering: .relaxed) { ring() }
    }

    /// Calls `body` once, at the first activity after this time, on the request's thread.
    func callAtActivity(after milliseconds: Int, _ body: @escaping @Sendable () -> Void) {
        onAlarm.set(body)
        alarm.store(monotonicMilliseconds() + milliseconds, ordering: .releasing)
    }

    private func ring() {
        guard alarm.exchange(.max, ordering: .acquiringAndReleasing) != .max else { return }
        onAlarm.notify()
    }

    /// The time of the last request, in milliseconds of CLOCK_MONOTONIC.
    package var lastActivityMilliseconds: Int { lastActivity.load(ordering: .relaxed) }
}
