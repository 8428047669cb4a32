internal import Control
internal import FileSystem
internal import Glibc
internal import LinuxSystem
internal import Locking
internal import Logging
internal import VaultFormat

/// The lock of one mount as the daemon drives it: lock files and signals in, events out, secrets checked. Any thread.
final class MountLock: Sendable {
    private let controller: LockController
    private let announcer: MountAnnouncer
    /// Nil where there are no lock files, before it is made and after the stop.
    private let watch: Monitor<LockWatch?>
    private let contents: MountContents
    private let logger: Logger
    private let ahead: SecretAhead?

    /// Locks at once where a lock file exists: before the first request is served.
    init(
        _ request: MountRequest, _ contents: MountContents, caches: any KernelCaches, announcer: MountAnnouncer,
        logger: Logger
    ) throws {
        self.announcer = announcer
        self.logger = logger
        self.contents = contents
        let unlockSecret = contents.unlockSecret
        let ahead = try contents.secretAhead.map { try SecretAhead($0, logger: logger) }
        self.ahead = ahead
        let watch = Monitor<LockWatch?>(nil)
        self.watch = watch
        let controller = LockController(
            fileSystem: contents.fileSystem, options: request.lock, lease: contents.lease, caches: caches,
            logger: logger,
            secretWanted: { give in
                ahead?.ask { secret in give { () throws(UnlockRefusal) in try unlockSecret(secret) } }
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
        // It reports in any case what there is when it starts.
        let started = LockWatch(request.lock.lockFiles, controller)
        watch.update { $0 = started }
    }

    /// Ends what waits for locks and unlocks.
    func stop() {
        watch.update { $0.take() }?.stop()
        ahead?.stop()
        controller.stop()
    }

    func lock(_ reason: LockReason) {
        controller.lock(reason)
    }

    /// As `vaultfs unlock` without a secret; what stands against it is logged.
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
            reply(.locked(receipt: JSONValue(encoding: receipt) ?? .object([:]), already: already))
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
    /// As the control socket tells it.
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
