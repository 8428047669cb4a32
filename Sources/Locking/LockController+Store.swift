internal import FileSystem
internal import LinuxSystem
internal import Synchronization

/// What a lock controller does that may wait for the vault's store: on other threads, and no longer than a lock may wait.
extension LockController {
    /// What of it goes on.
    enum StoreUse {
        /// Wipes keys, which are not to be those of an unlock that came meanwhile.
        case wiping
        /// Tries a secret, or brings keys back.
        case unlocking
        case other
    }

    /// Whether something of it goes on.
    var isStoreSilent: Bool { storeWork.access { !$0.isEmpty } }

    /// The same, unless all of it ends in time.
    func isStoreSilent(afterMilliseconds milliseconds: Int) -> Bool {
        storeWork.wait(until: monotonicDeadline(inMilliseconds: milliseconds)) { $0.isEmpty ? () : nil } == nil
    }

    /// Whether keys are being wiped still.
    var isWiping: Bool { storeWork.access { $0.contains(.wiping) } }

    /// Whether an unlock that was given up goes on still.
    var isUnlocking: Bool { storeWork.access { $0.contains(.unlocking) } }

    /// Runs what may wait for the store; nil where it has not ended in time, and goes on by itself.
    func bounded<Result: Sendable>(
        milliseconds: Int? = nil, as use: StoreUse = .other, _ body: @escaping @Sendable () -> Result
    ) -> Result? {
        begin(as: use, body).wait(milliseconds: milliseconds ?? options.storeTimeoutMilliseconds)
    }

    /// The same for what no lock waits for.
    func boundedUnlessLocking<Result: Sendable>(_ body: @escaping @Sendable () -> Result) -> Result? {
        begin(body).wait(milliseconds: options.storeTimeoutMilliseconds, unless: asksToLock)
    }

    /// The same within a grace, which ends in so many milliseconds, or when nobody writes any more.
    func boundedInGrace<Result: Sendable>(milliseconds: Int, _ body: @escaping @Sendable () -> Result) -> Result? {
        begin(body).wait(milliseconds: min(milliseconds, options.storeTimeoutMilliseconds)) { [fileSystem] in
            $0.isStopping || fileSystem.writingHandles == 0
        }
    }

    /// The same for what an unlock does. One who asks for a lock meanwhile is not told that the vault is locked while it goes on,
    /// if it ends as soon as a lock would.
    func boundedUnlocking<Result: Sendable>(milliseconds: Int, _ body: @escaping @Sendable () -> Result) -> Result? {
        let started = monotonicMilliseconds()
        let task = begin(as: .unlocking, body)
        if let result = task.wait(milliseconds: milliseconds, unless: asksToLock) { return result }
        let left = started + milliseconds - monotonicMilliseconds()
        if let result = task.wait(milliseconds: min(left, options.storeTimeoutMilliseconds), unless: { $0.isStopping })
        {
            return result
        }
        task.abandon()
        return nil
    }

    /// Has what a lock could not purge purged when the requests that wait for the store have ended.
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

    private func begin<Result: Sendable>(
        as use: StoreUse = .other, _ body: @escaping @Sendable () -> Result
    ) -> StoreTask<Result> {
        storeWork.update { $0.append(use) }
        return StoreTask(inbox, body) { [storeWork] in
            storeWork.update { work in _ = work.firstIndex(of: use).map { work.remove(at: $0) } }
        }
    }

    /// Whether a lock waits, of what is in the inbox.
    private func asksToLock(_ inbox: Inbox) -> Bool {
        inbox.asksToLock || (inbox.isPoked && hasLockFile)
    }
}
