internal import Control
internal import FileSystem
internal import Locking
internal import Logging
internal import Synchronization

/// Connects a mount's lock controller with lock files, signals, events and secrets. Any thread.
final class MountLock: Sendable {
    private let controller: LockController
    private let watch: LockWatch
    private let opened: any OpenedSource
    private let logger: Logger

    /// Makes the controller and the watch. If a lock file exists, locks before the first request is served.
    init(
        _ request: MountRequest, _ opened: any OpenedSource, caches: any KernelCaches, announcer: MountAnnouncer,
        logger: Logger
    ) throws {
        self.logger = logger
        self.opened = opened
        let watch = LockWatch(opened.fileSystem.gate.lockFiles)
        self.watch = watch
        controller = LockController(
            fileSystem: opened.fileSystem, options: request.lock, lease: opened.lease, caches: caches,
            logger: logger,
            secretWanted: { give in
                opened.prefetch?.start { secret in
                    do throws(ControlFailure) { give(try opened.secretSource(secret)) } catch {
                        logger.error("stays locked: \(error.message)")
                    }
                }
            },
            announce: { event in
                announcer.announce(event)
                // The controller may have seen a lock file before the watch did, and the watch must notice its removal.
                if case .willLock(let reasons, _) = event, reasons.contains(.lockFile) { watch.refresh() }
            })
        try controller.start()
        // The watch reports its first check in any case.
        watch.start(controller)
    }

    /// Ends locks and unlocks under way.
    func stop() {
        watch.stop()
        opened.prefetch?.stop()
        controller.stop()
    }

    func lock(_ reason: LockReason) { controller.lock(reason) }

    /// Unlocks without a secret, and logs a refusal.
    func unlock() {
        unlock(nil) { [logger] response in
            if case .error(let failure) = response { logger.notice("not unlocked: \(failure.message)") }
        }
    }

    func lock(forgetsKeys: Bool, reply: @escaping @Sendable (ControlResponse) -> Void) {
        let isDone = controller.lock(.command, forgetsKeys: forgetsKeys) { receipt, already in
            reply(.locked(receipt: receipt, already: already))
        }
        if !isDone { reply(.error(ControlFailure(.failed, LockController.stopped))) }
    }

    func unlock(_ secret: ClientSecret?, reply: @escaping @Sendable (ControlResponse) -> Void) {
        var source: LockController.SecretSource?
        do throws(ControlFailure) {
            if let secret { source = try opened.secretSource(secret) }
        } catch {
            return reply(.error(error))
        }
        controller.unlock(secret: source) { [watch, fileSystem = opened.fileSystem] outcome in
            watch.renew()
            switch outcome {
            case .success(let already):
                reply(.unlocked(already: already, arrivedFiles: already ? 0 : fileSystem.arrivedFiles))
            case .failure(let refusal): reply(.error(refusal.failure))
            }
        }
    }

    func status() -> LockStatus { controller.status() }
}

extension UnlockRefusal {
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

/// Notifies a lock controller when lock files appear or are removed. If the watch fails, the mount locks, and the next
/// unlock makes a new watch. Any thread.
private final class LockWatch: Sendable {
    private struct State {
        var watch: LockFileWatch?
        /// Nil without lock files, before the start, and after the stop.
        var controller: LockController?
        var isNeeded = true
    }

    private let files: LockFiles
    private let state = Mutex(State())

    init(_ files: LockFiles) { self.files = files }

    func start(_ controller: LockController) {
        if files.all.isEmpty { return }
        state.withLock { $0.controller = controller }
        renew()
    }

    /// Makes the first watch, or one after a failure. Otherwise refreshes it, because an unlock may accept other
    /// directories as those of the lock files.
    func renew() {
        let controller = state.withLock { state -> LockController? in
            defer { state.isNeeded = false }
            return state.isNeeded ? state.controller : nil
        }
        guard let controller else { return refresh() }
        do throws(LockFileError) {
            let fresh = try LockFileWatch(files: files) { [self] report in
                switch report {
                case .checked: controller.poke()
                case .failed(let errno): fail(controller, "\(errno)")
                }
            }
            replace(by: fresh)
        } catch {
            fail(controller, "\(error)")
        }
    }

    /// Makes the watch check the files and report.
    func refresh() { state.withLock { $0.watch }?.refresh() }

    func stop() {
        state.withLock { $0.controller = nil }
        replace(by: nil)
    }

    private func replace(by watch: LockFileWatch?) {
        let old = state.withLock { state in
            defer { state.watch = watch }
            return state.watch
        }
        old?.stop()
    }

    private func fail(_ controller: LockController, _ reason: String) {
        state.withLock { $0.isNeeded = true }
        controller.watchFailed(reason)
    }
}
