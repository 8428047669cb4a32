package import FileSystem
internal import Glibc
package import LinuxSystem
package import Logging
internal import Synchronization
internal import SystemPackage

/// Locks and unlocks one mount: gathers the triggers and works them off, one at a time, on a thread of its own, which
/// holds no lock that a request needs. Any thread may call.
package final class LockController: LockObserver, Sendable {
    /// With the receipt, and whether it was locked before.
    package typealias LockReply = @Sendable (LockReceipt, _ already: Bool) -> Void
    /// Whether it was not locked.
    package typealias UnlockReply = @Sendable (Result<Bool, UnlockRefusal>) -> Void
    /// What a user gave, as the file system's `restoreKeys` takes it: of a vault, the master key that it opens.
    package typealias SecretSource = @Sendable () throws(UnlockRefusal) -> UnlockSecret
    /// Has somebody find a secret, and returns at once; `give` takes it, whenever that is.
    package typealias SecretWanted = @Sendable (_ give: @escaping @Sendable (@escaping SecretSource) -> Void) -> Void

    enum Job: Sendable {
        case lock(LockReason, LockReply)
        case unlock(SecretSource?, UnlockReply)
        /// A secret that nobody gave who wants an unlock: it counts where nothing locks any more.
        case restore(SecretSource)
        /// The last handle of a file was closed while its class is locked.
        case purge(inode: UInt64, forgetKeys: @Sendable () -> Void)
        /// The store answers again: what a lock could not purge is purged now.
        case lockAgain

        var isLock: Bool { if case .lock = self { true } else { false } }
        var isUnlock: Bool {
            switch self {
            case .unlock, .restore: true
            case .lock, .purge, .lockAgain: false
            }
        }
    }

    struct Inbox {
        var jobs: [Job] = []
        /// A lock file may have changed.
        var isPoked = false
        var watchFailure: String?
        /// The mount has been used for a while since the lease was told the time.
        var isToNoteTime = false
        var isStopping = false
        /// Nobody looks into it any more.
        var isEnded = false

        /// Whether a lock waits in it, but for what a lock file says.
        var asksToLock: Bool {
            isStopping || watchFailure != nil || jobs.contains(where: \.isLock)
        }
    }

    let fileSystem: any LockableFileSystem
    let options: LockOptions
    let lease: (any LeaseKeeper)?
    let lockFileChecks: LockFileChecks?
    let caches: any KernelCaches
    let logger: Logger
    private let secretWanted: SecretWanted?
    let announce: @Sendable (LockEvent) -> Void
    let inbox = Monitor(Inbox())
    /// While a grace runs, which ends when nobody writes any more.
    let isInGrace = Atomic<Bool>(false)
    /// What the lock controller began that waits for the vault's store still.
    let storeWork = Monitor<[StoreUse]>([])
    /// Whether somebody waits until nothing does.
    let isToLockAgain = Atomic<Bool>(false)
    /// When the last refusal was announced, and how many had been before.
    private let announced = Mutex((milliseconds: 0, count: UInt64(0)))
    private let published: Mutex<LockStatus>
    private let thread = Mutex<BackgroundThread?>(nil)
    private let leaseTimer = Mutex<LeaseTimer?>(nil)
    /// How often a mount that is used notes what time it is.
    private static let millisecondsBetweenNotes = 3_600_000
    /// What who asks for something after the stop is told.
    package static let stopped = "the vault is being unmounted"

    /// - Parameter secretWanted: told each time that only a secret is missing, and nobody is there to be asked for it.
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
        lockFileChecks = fileSystem.gate.lockFileChecks
        published = Mutex(
            LockStatus(
                state: "\(fileSystem.gate.state)", reasons: [], since: UtcTime.now(), policy: options.policy,
                lockFiles: options.lockFiles.map { $0.path.string }, seen: [], needsSecret: false,
                classKeys: [], graceSeconds: Double(options.graceMilliseconds) / 1000,
                idleSeconds: options.idleMilliseconds.map { Double($0) / 1000 }, leaseEnds: nil, openFiles: 0,
                openForWriting: 0,
                refusedRequests: 0, locks: 0, lastReceipt: nil))
    }

    /// Starts the thread. A vault that a lock file locks already is locked when this returns.
    /// - Throws: pthread_create(3)'s error.
    package func start() throws(StoreError) {
        lockFileChecks?.whenSeen { [weak self] in self?.poke() }
        fileSystem.setLockObserver(self)
        if let lease {
            let timer = try LeaseTimer(changes: lease.changes) { [weak self] in self?.poke() }
            leaseTimer.withLock { $0 = timer }
            noteTimeLater()
        }
        var loop = LockThread(self)
        loop.begin()
        let start = Mutex(loop)
        let made = try BackgroundThread {
            // Of the calling thread and those it makes, on Linux: a purge competes with programs that try again and again.
            // Where the user may not, it does without.
            setpriority(__priority_which_t(PRIO_PROCESS.rawValue), 0, -20)
            start.withLock { $0.run() }
        }
        thread.withLock { $0 = made }
    }

    /// Ends the thread; whoever waits for a lock or an unlock is answered. Returns when it has ended, to every caller: who
    /// takes the session down relies on it.
    package func stop() {
        inbox.update { $0.isStopping = true }
        thread.withLock { thread in
            guard let running = thread.take() else { return }
            running.join()
            leaseTimer.withLock { $0.take() }?.stop()
            // Once, and before anybody goes on: then the vault is given up.
            _ = bounded { [lease] in lease?.noteTime() }
        }
    }

    /// Has the lock controller look again when the lease ends; nil: no more.
    func watchLease(until end: LeaseEnd?) {
        leaseTimer.withLock { $0?.set(end) }
    }

    /// Has the time noted when the mount is used after a while: a mount that nobody uses does not wake.
    func noteTimeLater() {
        fileSystem.gate.callAtActivity(after: Self.millisecondsBetweenNotes) { [weak self] in
            self?.inbox.update { $0.isToNoteTime = true }
        }
    }

    /// Locks; `reply` is called when that is done, or at once where it was. False, and no reply, where it is stopped and
    /// was not locked: the keys go with the process.
    @discardableResult
    package func lock(_ reason: LockReason, reply: @escaping LockReply = { _, _ in }) -> Bool {
        if post(.lock(reason, reply)) { return true }
        let last = published.withLock { $0.lastReceipt }
        guard fileSystem.gate.state == .locked, let last else { return false }
        reply(last, true)
        return true
    }

    /// Unlocks where nothing else locks. Without `secret` only where none is needed.
    package func unlock(secret: SecretSource? = nil, reply: @escaping UnlockReply = { _ in }) {
        if !post(.unlock(secret, reply)) { reply(.failure(.failed(Self.stopped))) }
    }

    /// Nothing but a secret is missing.
    func wantSecret() {
        secretWanted? { [weak self] secret in _ = self?.post(.restore(secret)) }
    }

    /// Has the lock files looked at.
    package func poke() {
        inbox.update { $0.isPoked = true }
    }

    /// Whether a lock waits that is not to be kept waiting.
    var isToLock: Bool { hasLockFile || inbox.access { $0.asksToLock } }

    /// Whether a lock file says so.
    var hasLockFile: Bool { lockFileChecks?.files.contains { $0.look().isLocked } ?? false }

    /// The lock files cannot be watched any more: locks.
    package func watchFailed(_ reason: String) {
        inbox.update { $0.watchFailure = reason }
    }

    /// The lock as of now.
    package func status() -> LockStatus {
        var status = published.withLock { $0 }
        status.state = "\(fileSystem.gate.state)"
        status.classKeys = fileSystem.presentKeys
        status.openFiles = fileSystem.openHandles
        status.openForWriting = fileSystem.writingHandles
        status.refusedRequests = fileSystem.counters.refusedRequests.total
        return status
    }

    // MARK: What requests tell

    package func refused() {
        let unreported = announced.withLock { announced -> UInt64 in
            // In the lock: of two threads the later one is to have the later count.
            let (count, milliseconds) = (fileSystem.counters.refusedRequests.total, monotonicMilliseconds())
            // Programs that try again and again are not to flood whoever listens.
            guard milliseconds - announced.milliseconds >= 1000 else { return 0 }
            defer { announced = (milliseconds, count) }
            return count - announced.count
        }
        if unreported > 0 { announce(.denied(count: unreported)) }
    }

    package func noWriterLeft() {
        if isInGrace.load(ordering: .sequentiallyConsistent) { inbox.update { _ in } }
    }

    package func closed(inode: UInt64, forgetKeys: @escaping @Sendable () -> Void) {
        _ = post(.purge(inode: inode, forgetKeys: forgetKeys))
    }

    func publish(_ change: (inout LockStatus) -> Void) {
        published.withLock { change(&$0) }
    }
}

extension LockController {
    /// False where nobody would do it any more: it is not kept, nor is a secret in it.
    func post(_ job: Job) -> Bool {
        inbox.update { inbox in
            if !inbox.isEnded { inbox.jobs.append(job) }
            return !inbox.isEnded
        }
    }

    /// Has no job come any more. False where one has.
    func endInbox() -> Bool {
        inbox.access { inbox in
            inbox.isEnded = inbox.jobs.isEmpty
            return inbox.isEnded
        }
    }
}
