internal import CLinux
internal import FileSystem
internal import LinuxSystem
internal import Synchronization

/// Something that may wait for the vault's store, which may not answer, on a thread of its own. Whoever waits for it does so at the
/// locker's inbox, and sees what else comes there. Any thread.
final class StoreTask<Result: Sendable>: Sendable {
    private let result = Mutex<Result?>(nil)
    private let isAbandoned = Atomic<Bool>(false)
    private let inbox: Monitor<LockController.Inbox>

    /// Begins it; where there is no thread to be had, ends it as well.
    /// - Parameter whenEnded: called before its result can be seen.
    init(
        _ inbox: Monitor<LockController.Inbox>, _ body: @escaping @Sendable () -> Result,
        whenEnded: @escaping @Sendable () -> Void
    ) {
        self.inbox = inbox
        let body = Mutex<(@Sendable () -> Result)?>(body)
        let run = { @Sendable [self] in
            // Both may have the secret of an unlock, which is to be nowhere when one that was given up has ended.
            var result = body.withLock { $0.take() }?()
            if isAbandoned.load(ordering: .acquiring) { result = nil }
            linux_scrub_thread()
            whenEnded()
            self.result.withLock { $0 = result }
            inbox.update { _ in }
        }
        if let thread = try? BackgroundThread(run) { thread.detach() } else { run() }
    }

    /// What it returned; nil where it has not ended in time, or when `isEnough` says so of the inbox: then it goes on by itself.
    func wait(milliseconds: Int, unless isEnough: (LockController.Inbox) -> Bool = { _ in false }) -> Result? {
        let outcome = inbox.wait(until: monotonicDeadline(inMilliseconds: milliseconds)) { inbox -> Result?? in
            if let result = result.withLock({ $0 }) { return .some(result) }
            return isEnough(inbox) ? .some(nil) : nil
        }
        return outcome ?? nil
    }

    /// Nobody waits for it any more.
    func abandon() { isAbandoned.store(true, ordering: .releasing) }
}
