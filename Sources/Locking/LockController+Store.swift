internal import FileSystem
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
        case other
    }

    /// True while any of it is in progress.
    var isStoreSilent: Bool { storeWork.access { !$0.isEmpty } }

    /// True if some of it is still in progress after that time.
    func isStoreSilent(afterMilliseconds milliseconds: Int) -> Bool {
        storeWork.wait(until: monotonicDeadline(inMilliseconds: milliseconds)) { $0.isEmpty ? () : nil } == nil
    }

    /// True while keys are being wiped.
    var isWiping: Bool { storeWork.access { $0.contains(.wiping) } }

    /// True while an unlock that was given up still runs.
    var isUnlocking: Bool { storeWork.access { $0.contains(.unlocking) } }

    /// Runs `body`. Returns nil after the timeout. `body` then continues.
    func bounded<Result: Sendable>(
        milliseconds: Int? = nil, as use: StoreUse = .other, _ body: @escaping @Sendable () -> Result
    ) -> Result? {
        begin(as: use, body).wait(milliseconds: milliseconds ?? options.storeTimeoutMilliseconds)
    }

    /// As `bounded`, but also returns nil as soon as a lock is requested.
    func boundedUnlessLocking<Result: Sendable>(_ body: @escaping @Sendable () -> Result) -> Result? {
        begin(body).wait(milliseconds: options.storeTimeoutMilliseconds, unless: asksToLock)
    }

    /// As `bounded`, during a grace that ends in so many milliseconds or when no file is open for writing.
    func boundedInGrace<Result: Sendable>(milliseconds: Int, _ body: @escaping @Sendable () -> Result) -> Result? {
        begin(body).wait(milliseconds: min(milliseconds, options.storeTimeoutMilliseconds)) { [fileSystem] in
            $0.isStopping || fileSystem.writingHandles == 0
        }
    }

    /// As `bounded`, for an unlock. If a lock is requested meanwhile, the unlock gets the time that a lock may take. So no
    /// receipt reports a locked vault while the unlock still runs, unless it takes longer.
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

    private func begin<Result: Sendable>(
        as use: StoreUse = .other, _ body: @escaping @Sendable () -> Result
    ) -> StoreTask<Result> {
        storeWork.update { $0.append(use) }
        return StoreTask(inbox, body) { [storeWork] in
            storeWork.update { work in _ = work.firstIndex(of: use).map { work.remove(at: $0) } }
        }
    }

    /// True if the inbox holds a reason to lock.
    private func asksToLock(_ inbox: Inbox) -> Bool {
        inbox.asksToLock || (inbox.isPoked && hasLockFile)
    }
}
