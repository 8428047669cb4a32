internal import CLinux
internal import LinuxSystem
internal import Synchronization

/// Work that may wait for the vault's store. It runs on other threads, and the lock thread waits for it with a timeout.
extension LockController {
    /// Kinds of such work.
    enum StoreUse {
        /// Wipes keys. It must have ended before an unlock restores them.
        case wiping
        /// Tries a secret, or restores keys.
        case unlocking
        /// Finds out if the store answers. Has no keys.
        case checking
        case other
    }

    /// True if some of it that may have keys is still in progress after that time.
    func isStoreSilent(afterMilliseconds milliseconds: Int = 0) -> Bool {
        let end = ContinuousClock.now + .milliseconds(milliseconds)
        return storeWork.wait(until: end) { $0.allSatisfy { $0 == .checking } ? () : nil } == nil
    }

    /// True while such work is in progress, even if it was given up.
    func isInProgress(_ use: StoreUse) -> Bool { storeWork.access { $0.contains(use) } }

    /// Runs `body`. Returns nil after the deadline, or when `isEnough` returns true for the queue. `body` then continues.
    /// - Parameter deadline: that of `storeTimeoutMilliseconds` unless given.
    func bounded<Result: Sendable>(
        until deadline: ContinuousClock.Instant? = nil, as use: StoreUse = .other,
        unless isEnough: (Queue) -> Bool = { _ in false },
        _ body: @escaping @Sendable () -> Result
    ) -> Result? {
        begin(as: use, body).wait(until: deadline ?? storeDeadline, unless: isEnough)
    }

    /// The time at which the store counts as silent.
    var storeDeadline: ContinuousClock.Instant { .now + .milliseconds(options.storeTimeoutMilliseconds) }

    /// Does the same as `bounded`, for an unlock. If a lock is requested meanwhile, the unlock gets the time that a
    /// lock may take. So no receipt reports a locked vault while the unlock still runs, unless it takes longer.
    func boundedUnlocking<Result: Sendable>(milliseconds: Int, _ body: @escaping @Sendable () -> Result) -> Result? {
        let deadline = ContinuousClock.now + .milliseconds(milliseconds)
        let task = begin(as: .unlocking, body)
        if let result = task.wait(until: deadline, unless: asksToLock) { return result }
        if let result = task.wait(until: min(deadline, storeDeadline), unless: \.isStopping) { return result }
        task.abandon()
        return nil
    }

    /// Locks again when the requests and the work that wait for the store have ended, to purge what is left.
    func lockAgainLater() {
        guard !isToLockAgain.exchange(true, ordering: .sequentiallyConsistent) else { return }
        let waiting = try? BackgroundThread { [weak self, storeWork, gate = fileSystem.gate] in
            gate.drain()
            storeWork.wait { $0.isEmpty ? () : nil }
            guard let self else { return }
            isToLockAgain.store(false, ordering: .sequentiallyConsistent)
            _ = post(.lockAgain)
        }
        guard let waiting else { return isToLockAgain.store(false, ordering: .sequentiallyConsistent) }
        waiting.detach()
    }

    /// True if the queue holds a reason to lock.
    func asksToLock(_ queue: Queue) -> Bool { queue.asksToLock || (queue.isPoked && hasLockFile) }

    private func begin<Result: Sendable>(
        as use: StoreUse, _ body: @escaping @Sendable () -> Result
    ) -> StoreTask<Result> {
        storeWork.update { $0.append(use) }
        return StoreTask(queue, body) { [storeWork] in
            storeWork.update { work in _ = work.firstIndex(of: use).map { work.remove(at: $0) } }
        }
    }
}

/// A task that may wait for the vault's store, on a thread of its own. Callers wait for it at the lock controller's
/// queue, and so see new jobs. Any thread.
final class StoreTask<Result: Sendable>: Sendable {
    private struct Body {
        let run: @Sendable () -> Result
    }

    private let result = Mutex<Result?>(nil)
    private let isAbandoned = Atomic<Bool>(false)
    private let queue: Monitor<LockController.Queue>

    /// Starts the task. If no thread can be created, runs it at once.
    /// - Parameter whenEnded: called before the result is available.
    init(
        _ queue: Monitor<LockController.Queue>, _ body: @escaping @Sendable () -> Result,
        whenEnded: @escaping @Sendable () -> Void
    ) {
        self.queue = queue
        let body = Mutex<Body?>(Body(run: body))
        let run = { @Sendable [self] in
            // Both may hold an unlock's secret. Nothing of it may remain once a task that was given up has ended.
            var result = body.withLock { $0.take() }?.run()
            if isAbandoned.load(ordering: .acquiring) { result = nil }
            linux_scrub_thread()
            whenEnded()
            self.result.withLock { $0 = result }
            queue.update { _ in }
        }
        if let thread = try? BackgroundThread(run) { thread.detach() } else { run() }
    }

    /// The result. Nil if it is not available in time, or when `isEnough` returns true for the queue. The task continues.
    func wait(
        until deadline: ContinuousClock.Instant, unless isEnough: (LockController.Queue) -> Bool = { _ in false }
    ) -> Result? {
        let outcome = queue.wait(until: deadline) { queue -> Result?? in
            if let result = result.withLock({ $0 }) { return .some(result) }
            return isEnough(queue) ? .some(nil) : nil
        }
        return outcome ?? nil
    }

    /// Drops the result as soon as there is one.
    func abandon() { isAbandoned.store(true, ordering: .releasing) }
}
