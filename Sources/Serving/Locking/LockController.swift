internal import CLinux
package import FileSystem
internal import Glibc
package import LinuxSystem
package import Logging
internal import Synchronization
internal import SystemPackage

/// Locks and unlocks one mount. Collects the triggers and handles them one at a time on a thread of its own, which
/// holds only locks that requests do without. Any thread may call.
package final class LockController: Sendable {
    /// Called with the receipt, and with true if the mount was already locked.
    package typealias LockReply = @Sendable (LockReceipt, _ already: Bool) -> Void
    /// Called with true if the mount was already unlocked.
    package typealias UnlockReply = @Sendable (Result<Bool, UnlockRefusal>) -> Void
    /// Returns the secret for the file system's `restoreKeys`: for a vault, the master key.
    package typealias SecretSource = @Sendable () throws(UnlockRefusal) -> UnlockSecret
    /// Requests a secret from elsewhere and returns at once. `give` may be called with the secret at any later time.
    package typealias SecretWanted = @Sendable (_ give: @escaping @Sendable (@escaping SecretSource) -> Void) -> Void

    enum Job: Sendable {
        case lock(LockReason, forgetsKeys: Bool, LockReply)
        case unlock(SecretSource?, UnlockReply)
        /// A secret fetched in the background, not by an explicit unlock. Used only if no lock reason remains.
        case restore(SecretSource)
        /// The last handle of a file was closed while its class is locked.
        case purge([ClosedFile])
        /// The store answers again, so a lock can purge what an earlier one could not.
        case lockAgain

        var isLock: Bool { if case .lock = self { true } else { false } }
        var isUnlock: Bool {
            switch self {
            case .unlock, .restore: true
            case .lock, .purge, .lockAgain: false
            }
        }
    }

    struct ClosedFile {
        let inode: UInt64
        /// Wipes the file's keys, unless it was opened again.
        let forgetKeys: @Sendable () -> Void
    }

    struct Queue {
        var jobs: [Job] = []
        /// True if a lock file may have changed.
        var isPoked = false
        var watchFailure: String?
        /// True if the lease must save the time again, because the mount has been used.
        var isToSaveTime = false
        var isStopping = false
        /// True once the thread refuses further jobs.
        var isEnded = false

        /// True if the queue contains a reason to lock, apart from lock files.
        var asksToLock: Bool { isStopping || watchFailure != nil || jobs.contains(where: \.isLock) }
    }

    let fileSystem: any LockableFileSystem
    let options: LockOptions
    let lease: (any LeaseKeeper)?
    let caches: any KernelCaches
    let logger: Logger
    private let secretWanted: SecretWanted?
    let announce: @Sendable (LockEvent) -> Void
    let queue = Monitor(Queue())
    let isInGrace = Atomic<Bool>(false)
    /// Work in progress that may wait for the vault's store.
    private let storeWork = Monitor<[StoreUse]>([])
    /// True while a thread waits to lock again.
    private let isToLockAgain = Atomic<Bool>(false)
    /// The time of the last announced refusal, and the number of refusals until then.
    private let announced = Mutex((milliseconds: 0, count: UInt64(0)))
    private let published: Mutex<LockStatus>
    private let thread = Mutex<BackgroundThread?>(nil)
    private let leaseTimer = Mutex<LeaseTimer?>(nil)
    /// The interval at which a used mount saves the time.
    private static let millisecondsBetweenSaves = 3_600_000
    /// The error returned for requests that arrive after `stop()`.
    package static let stopped = "the vault is being unmounted"

    /// - Parameter secretWanted: called each time that an unlock lacks only the secret and none is in progress.
    package init(
        fileSystem: any LockableFileSystem, options: LockOptions, lease: (any LeaseKeeper)? = nil,
        caches: any KernelCaches, logger: Logger, secretWanted: SecretWanted? = nil,
        announce: @escaping @Sendable (LockEvent) -> Void
    ) {
        self.fileSystem = fileSystem
        self.secretWanted = secretWanted
        self.lease = lease
        self.options = options
        self.caches = caches
        self.logger = logger
        self.announce = announce
        published = Mutex(
            LockStatus(
                state: fileSystem.gate.state.text, policy: options.policy.rawValue,
                lockFiles: options.lockFiles.map { $0.path.string },
                graceSeconds: Double(options.graceMilliseconds) / 1000,
                idleSeconds: options.idleMilliseconds.map { Double($0) / 1000 }))
    }

    /// Starts the thread. If a lock file exists, the vault is locked when this returns.
    /// - Throws: pthread_create(3)'s error.
    package func start() throws(StoreError) {
        fileSystem.gate.whenSighted { [weak self] in self?.poke() }
        fileSystem.setLockController(self)
        if let lease {
            let timer = try LeaseTimer(changes: lease.changes) { [weak self] in self?.poke() }
            leaseTimer.withLock { $0 = timer }
            saveTimeAtNextUse()
        }
        var loop = LockThread(self)
        loop.begin()
        let start = Mutex(loop)
        let made = try BackgroundThread {
            // On Linux this affects the calling thread and the threads it creates. A purge competes with programs that
            // retry constantly, so raise the priority. Without the right to do so, it stays.
            setpriority(__priority_which_t(PRIO_PROCESS.rawValue), 0, -20)
            start.withLock { $0.run() }
        }
        thread.withLock { $0 = made }
    }

    /// Ends the thread and answers all pending locks and unlocks. Every caller waits until the thread has ended,
    /// because the session may be released afterwards.
    package func stop() {
        queue.update { $0.isStopping = true }
        thread.withLock { thread in
            guard let running = thread.take() else { return }
            running.join()
            leaseTimer.withLock { $0.take() }?.stop()
            // Save the time once, and before any caller returns, because the vault's writer lock is released then.
            _ = bounded { [lease] in lease?.saveTime() }
        }
    }

    /// Makes the lock controller check the lease again at `end`. Nil cancels the check.
    func watchLease(until end: LeaseEnd?) { leaseTimer.withLock { $0?.set(end) } }

    /// Saves the time at the first use after an interval, so an unused mount does not wake.
    func saveTimeAtNextUse() {
        fileSystem.gate.callAtActivity(after: Self.millisecondsBetweenSaves) { [weak self] in
            self?.queue.update { $0.isToSaveTime = true }
        }
    }

    /// Locks. Calls `reply` afterwards, or at once if the mount is already locked. Returns false, without a reply, if
    /// the controller is stopped and the mount was not locked. The keys then end with the process.
    /// - Parameter forgetsKeys: true to treat the keys as with the policy `forget`, even during another lock.
    @discardableResult
    package func lock(
        _ reason: LockReason, forgetsKeys: Bool = false, reply: @escaping LockReply = { _, _ in }
    ) -> Bool {
        if post(.lock(reason, forgetsKeys: forgetsKeys, reply)) { return true }
        let last = published.withLock { $0.lastReceipt }
        guard fileSystem.gate.state == .locked, let last else { return false }
        reply(last, true)
        return true
    }

    /// Unlocks if other reasons are absent. Without `secret` this succeeds only if none is needed.
    package func unlock(secret: SecretSource? = nil, reply: @escaping UnlockReply = { _ in }) {
        if !post(.unlock(secret, reply)) { reply(.failure(.failed(Self.stopped))) }
    }

    func wantSecret() { secretWanted? { [weak self] secret in _ = self?.post(.restore(secret)) } }

    /// Makes the lock thread check the lock files.
    package func poke() { queue.update { $0.isPoked = true } }

    /// True if there is a reason to lock.
    var isToLock: Bool { hasLockFile || queue.access { $0.asksToLock } }

    /// True unless all lock files are surely absent: one exists, its directory is another or gone, or a check failed.
    private var hasLockFile: Bool { fileSystem.gate.lockFiles.all.contains { $0.check().isLocked } }

    /// Locks because the lock files can no longer be watched.
    package func watchFailed(_ reason: String) { queue.update { $0.watchFailure = reason } }

    /// The current state.
    package func status() -> LockStatus {
        var status = published.withLock { $0 }
        status.state = fileSystem.gate.state.text
        status.classKeys = fileSystem.presentKeys
        status.openFiles = fileSystem.openHandles
        status.openForWriting = fileSystem.writingHandles
        status.arrivedFiles = fileSystem.arrivedFiles
        status.refusedRequests = fileSystem.counters.refusedRequests.total
        return status
    }

    // MARK: Events from requests

    /// Counts a refused request. Never blocks.
    package func refused() {
        let unreported = announced.withLock { announced -> UInt64 in
            // Read both inside the mutex, so that of two threads the later one has the later count.
            let (count, milliseconds) = (fileSystem.counters.refusedRequests.total, monotonicMilliseconds())
            // Announce at most one event a second, because programs may retry constantly.
            guard milliseconds - announced.milliseconds >= 1000 else { return 0 }
            defer { announced = (milliseconds, count) }
            return count - announced.count
        }
        if unreported > 0 { announce(.denied(count: unreported)) }
    }

    /// Reports that the last file open for writing was closed. Never blocks.
    package func noWriterLeft() {
        if isInGrace.load(ordering: .sequentiallyConsistent) { queue.update { _ in } }
    }

    /// Purges a file whose last handle was closed during a lock, if the lock leaves it available only while it is open.
    /// - Parameter forgetKeys: wipes the file's keys, unless it was opened again.
    package func closed(inode: UInt64, forgetKeys: @escaping @Sendable () -> Void) {
        let file = ClosedFile(inode: inode, forgetKeys: forgetKeys)
        queue.update { queue in
            // Purge many files together.
            if case .purge(var files) = queue.jobs.last {
                // Remove the job first, so that the array is not copied.
                queue.jobs.removeLast()
                files.append(file)
                queue.jobs.append(.purge(files))
            } else if !queue.isEnded {
                queue.jobs.append(.purge([file]))
            }
        }
    }

    func publish(_ change: (inout LockStatus) -> Void) { published.withLock { change(&$0) } }

    /// Adds a job. Returns false, and keeps nothing of it, if the thread refuses further jobs.
    func post(_ job: Job) -> Bool {
        queue.update { queue in
            if !queue.isEnded { queue.jobs.append(job) }
            return !queue.isEnded
        }
    }

    /// Closes the queue if it is empty. Returns false if there is another job.
    func endQueue() -> Bool {
        queue.access { queue in
            queue.isEnded = queue.jobs.isEmpty
            return queue.isEnded
        }
    }
}

/// Work that may wait for the vault's store. Other threads run it, and the lock thread waits for it with a timeout.
extension LockController {
    /// The kinds of such work.
    enum StoreUse {
        /// Wipes keys, and must have ended before an unlock restores them.
        case wiping
        /// Tries a secret, or restores keys.
        case unlocking
        /// Finds out if the store answers. Has no keys.
        case checking
        /// Drops names in the kernel. Has no keys.
        case naming
        case other
    }

    /// Returns true if work that may have keys is still in progress after this time.
    func isStoreSilent(afterMilliseconds milliseconds: Int = 0) -> Bool {
        let end = ContinuousClock.now + .milliseconds(milliseconds)
        return storeWork.wait(until: end) { $0.allSatisfy { $0 == .checking || $0 == .naming } ? () : nil } == nil
    }

    /// Returns true while such work is in progress, even after its caller has given up.
    func isInProgress(_ use: StoreUse) -> Bool { storeWork.access { $0.contains(use) } }

    /// Runs `body`. Returns nil after the deadline, or when `isEnough` returns true for the queue. `body` then
    /// continues.
    /// - Parameter deadline: nil for `storeDeadline`.
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
    /// lock may take. So a receipt reports a locked vault only after the unlock has ended or timed out.
    func boundedUnlocking<Result: Sendable>(milliseconds: Int, _ body: @escaping @Sendable () -> Result) -> Result? {
        let deadline = ContinuousClock.now + .milliseconds(milliseconds)
        let task = begin(as: .unlocking, body)
        if let result = task.wait(until: deadline, unless: asksToLock) { return result }
        if let result = task.wait(until: min(deadline, storeDeadline), unless: \.isStopping) { return result }
        task.abandon()
        return nil
    }

    /// Locks again when the requests and the work waiting for the store have ended, to purge the rest.
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

    /// Returns true if the queue contains a reason to lock.
    func asksToLock(_ queue: Queue) -> Bool { queue.asksToLock || (queue.isPoked && hasLockFile) }

    /// Starts `body` on a thread of its own.
    func begin<Result: Sendable>(
        as use: StoreUse, _ body: @escaping @Sendable () -> Result
    ) -> StoreTask<Result> {
        storeWork.update { $0.append(use) }
        return StoreTask(queue, body) { [storeWork] in
            storeWork.update { work in _ = work.firstIndex(of: use).map { work.remove(at: $0) } }
        }
    }
}

/// A task that may wait for the vault's store, on a thread of its own. Callers wait for it at the lock controller's
/// queue, and so notice new jobs. Any thread.
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
            // Task and result may hold an unlock's secret, so drop both once an abandoned task has ended.
            var result = body.withLock { $0.take() }?.run()
            if isAbandoned.load(ordering: .acquiring) { result = nil }
            linux_scrub_thread()
            whenEnded()
            self.result.withLock { $0 = result }
            queue.update { _ in }
        }
        if let thread = try? BackgroundThread(run) { thread.detach() } else { run() }
    }

    /// Waits for the result. Nil at the deadline, or when `isEnough` returns true for the queue. The task continues.
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
