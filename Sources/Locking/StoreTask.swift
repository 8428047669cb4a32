internal import CLinux
internal import LinuxSystem
internal import Synchronization

/// A task that may wait for the vault's store, on a thread of its own. Callers wait for it at the lock controller's
/// inbox, and so see new jobs. Any thread.
final class StoreTask<Result: Sendable>: Sendable {
    private let result = Mutex<Result?>(nil)
    private let isAbandoned = Atomic<Bool>(false)
    private let inbox: Monitor<LockController.Inbox>

    /// Starts the task. If no thread can be created, runs it at once.
    /// - Parameter whenEnded: called before the result is available.
    init(
        _ inbox: Monitor<LockController.Inbox>, _ body: @escaping @Sendable () -> Result,
        whenEnded: @escaping @Sendable () -> Void
    ) {
        self.inbox = inbox
        let body = Mutex<(@Sendable () -> Result)?>(body)
        let run = { @Sendable [self] in
            // Both may hold an unlock's secret. Nothing of it may remain once a task that was given up has ended.
            var result = body.withLock { $0.take() }?()
            if isAbandoned.load(ordering: .acquiring) { result = nil }
            linux_scrub_thread()
            whenEnded()
            self.result.withLock { $0 = result }
            inbox.update { _ in }
        }
        if let thread = try? BackgroundThread(run) { thread.detach() } else { run() }
    }

    /// The result. Nil if it is not available in time, or when `isEnough` returns true for the inbox. The task continues.
    func wait(milliseconds: Int, unless isEnough: (LockController.Inbox) -> Bool = { _ in false }) -> Result? {
        let outcome = inbox.wait(until: monotonicDeadline(inMilliseconds: milliseconds)) { inbox -> Result?? in
            if let result = result.withLock({ $0 }) { return .some(result) }
            return isEnough(inbox) ? .some(nil) : nil
        }
        return outcome ?? nil
    }

    /// Drops the result as soon as there is one.
    func abandon() { isAbandoned.store(true, ordering: .releasing) }
}
