internal import Control
internal import FileSystem
internal import Glibc
internal import LinuxSystem
internal import Locking
internal import Logging
internal import Synchronization
internal import VaultFormat

/// Connects a mount's lock controller with lock files, signals, events and secrets. Any thread.
final class MountLock: Sendable {
    private let controller: LockController
    private let announcer: MountAnnouncer
    /// Nil without lock files, before it is made, and after the stop.
    private let watch: Monitor<LockWatch?>
    private let contents: MountContents
    private let logger: Logger
    private let prefetch: SecretPrefetch?

    /// Locks before the first request is served if a lock file exists.
    init(
        _ request: MountRequest, _ contents: MountContents, caches: any KernelCaches, announcer: MountAnnouncer,
        logger: Logger
    ) throws {
        self.announcer = announcer
        self.logger = logger
        self.contents = contents
        let unlockSecret = contents.unlockSecret
        let prefetch = try contents.prefetch.map { try SecretPrefetch($0, logger: logger) }
        self.prefetch = prefetch
        let watch = Monitor<LockWatch?>(nil)
        self.watch = watch
        let controller = LockController(
            fileSystem: contents.fileSystem, options: request.lock, lease: contents.lease, caches: caches,
            logger: logger,
            secretWanted: { give in
                prefetch?.start { secret in give { () throws(UnlockRefusal) in try unlockSecret(secret) } }
            },
            announce: { event in
                announcer.announce(event)
                if case .willLock(let reasons, _) = event, reasons.contains(.lockFile) {
                    watch.access { $0 }?.refresh()
                }
            })
        self.controller = controller
        try controller.start()
        if request.lock.lockFiles.isEmpty { return }
        // It reports its first look in any case.
        let started = LockWatch(request.lock.lockFiles, controller)
        watch.update { $0 = started }
    }

    /// Ends locks and unlocks under way.
    func stop() {
        watch.update { $0.take() }?.stop()
        prefetch?.stop()
        controller.stop()
    }

    func lock(_ reason: LockReason) {
        controller.lock(reason)
    }

    /// Unlocks without a secret, and logs a refusal.
    func unlock() {
        let (logger, watch) = (logger, watch)
        controller.unlock(secret: nil) { outcome in
            watch.access { $0 }?.renew()
            if case .failure(let refusal) = outcome { logger.notice("not unlocked: \(refusal.failure.message)") }
        }
    }

    /// Answers `lock`.
    func lock(reply: @escaping @Sendable (ControlResponse) -> Void) {
        let isDone = controller.lock(.command) { receipt, already in
            reply(.locked(receipt: receipt, already: already))
        }
        if !isDone { reply(.error(ControlFailure(.failed, LockController.stopped))) }
    }

    /// Answers `unlock`.
    func unlock(_ secret: SlotSecret?, reply: @escaping @Sendable (ControlResponse) -> Void) {
        let (unlockSecret, watch) = (contents.unlockSecret, watch)
        var source: LockController.SecretSource?
        if let secret {
            source = { () throws(UnlockRefusal) in try unlockSecret(secret) }
        }
        controller.unlock(secret: source) { outcome in
            watch.access { $0 }?.renew()
            switch outcome {
            case .success(let already): reply(.unlocked(already: already))
            case .failure(let refusal): reply(.error(refusal.failure))
            }
        }
    }

    func status() -> LockStatus { controller.status() }
}

extension UnlockRefusal {
    /// The refusal as the control socket's failure.
    fileprivate var failure: ControlFailure {
        switch self {
        case .lockFile(let files, let reason): ControlFailure(.lockFileExists, reason, lockFiles: files)
        case .secretNeeded: ControlFailure(.secretNeeded, "the keys are forgotten: a secret is needed")
        case .wrongSecret(let reason), .slotExpired(let reason): ControlFailure(.wrongSecret, reason)
        case .tooManyTries(let seconds):
            ControlFailure(
                .tooManyTries, "too many wrong secrets: wait \(seconds) s", retryAfterSeconds: Double(seconds))
        case .failed(let reason): ControlFailure(.failed, reason)
        }
    }
}

/// Notifies a lock controller when lock files come or go. If the watch fails, the mount locks, and the next unlock makes a new
/// watch. Any thread.
final class LockWatch: Sendable {
    private let files: [LockFile]
    private let controller: LockController
    private let watch = Mutex<LockFileWatch?>(nil)
    private let hasFailed = Atomic<Bool>(true)

    init(_ files: [LockFile], _ controller: LockController) {
        self.files = files
        self.controller = controller
        renew()
    }

    /// Called after an unlock, which may have accepted other directories as those of the lock files.
    func renew() {
        guard hasFailed.exchange(false, ordering: .sequentiallyConsistent) else {
            refresh()
            return
        }
        do throws(LockFileError) {
            let fresh = try LockFileWatch(files: files) { [self] report in take(report) }
            watch.withLock { swap(&$0, fresh) }?.stop()
        } catch {
            fail("\(error)")
        }
    }

    /// Called when the controller has seen a lock file before the watch did, so that its removal is noticed.
    func refresh() {
        watch.withLock { $0 }?.refresh()
    }

    func stop() {
        watch.withLock { swap(&$0, nil) }?.stop()
    }

    private func take(_ report: LockFileWatch.Report) {
        switch report {
        case .looked: controller.poke()
        case .failed(let errno): fail("\(errno)")
        }
    }

    private func fail(_ reason: String) {
        hasFailed.store(true, ordering: .sequentiallyConsistent)
        controller.watchFailed(reason)
    }

    private func swap(_ old: inout LockFileWatch?, _ new: LockFileWatch?) -> LockFileWatch? {
        defer { old = new }
        return old
    }
}
