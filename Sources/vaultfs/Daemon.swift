internal import BackingStore
internal import FoundationEssentials
internal import FuseSession
internal import Glibc
internal import Logging
internal import MountedFileSystem
internal import SystemPackage
internal import VaultControl
internal import VaultCrypto
internal import VaultFileSystem
internal import VaultFormat
internal import VaultStore

/// One mount being served: the vault's lock, its keys, the FUSE session, the control socket, the signals.
final class Daemon: Sendable {
    let logger: Logger
    private let request: MountRequest
    private let directory: VaultDirectory
    private let fileSystem: VaultFileSystem
    private let session: FuseSession
    private let lock: MountLock
    private let control: ControlServer?
    private let guardian: Guardian?

    /// How long a mount waits for a daemon that is shutting down.
    private static let lockPatience: Duration = .seconds(10)

    /// Locks the vault, reads its configuration anew, and mounts. Signals that end the daemon are blocked from here on,
    /// in this thread and all that follow: call it before any thread was made. The master key is forgotten on the way.
    /// - Parameter isWanted: asked before the mount is made.
    init(
        _ request: MountRequest, masterKey: SecretBytes, guardian: Guardian?, isWanted: () -> Bool = { true }
    ) throws {
        self.guardian = guardian
        Signals.block(Signals.ending + Signals.locking)
        ProcessSetup.raiseLimits()
        logger = Logger(label: "vaultfs")
        self.request = request
        let locked = try VaultDirectory.open(request.vaultPath)
        try locked.lock(request.sharing, wait: Self.lockPatience)
        // Only now nobody else writes it.
        directory = try locked.reread()
        try directory.authenticate(masterKey: masterKey)
        let keyRing = try KeyRing(masterKey: masterKey, configuration: directory.configuration)
        // Callers hold on to it for as long as this process serves; and every key follows from it.
        masterKey.forget()
        let store = try Store(
            root: directory.root, keyRing: keyRing, cacheSize: request.cacheSize, isReadOnly: request.isReadOnly)
        fileSystem = try VaultFileSystem(store: store, gate: LockGate(request.lock))
        guard isWanted() else { throw CommandFailure(.failure, "whoever asked for the mount has gone") }
        session = try FuseSession(fileSystem: fileSystem, options: request.mountOptions, logger: logger)
        // Without, the mount is as good; only nobody helps a daemon that is killed and cannot die.
        if let device = try? MountTable.read().entry(at: request.mountpoint.bytes)?.device {
            guardian?.watch(over: device)
        }
        let announcer = MountAnnouncer(mountpoint: request.mountpoint)
        session.onDamage { announcer.announce(.integrityError($0)) }
        do {
            lock = try MountLock(
                request, fileSystem: fileSystem, caches: session, announcer: announcer, logger: logger)
        } catch {
            session.cancel()
            throw error
        }
        let reporter = StatusReporter(
            request: request, vault: keyRing.vault, fileSystem: fileSystem, lock: lock, announcer: announcer)
        control = Self.makeControl(request, reporter: reporter, logger: logger)
        announcer.connect(to: control)
        let shortcomings = MemoryProtection(cacheIsLocked: store.cache.isLocked).shortcomings
        if !shortcomings.isEmpty {
            logger.warning("memory is not protected as well as it could be: \(shortcomings.joined(separator: "; "))")
        }
        do {
            try takeSignals()
        } catch {
            lock.stop()
            session.cancel()
            throw error
        }
    }

    private func takeSignals() throws {
        try Signals.onArrival(of: Signals.ending + Signals.locking) { [self] number in
            switch number {
            case SIGUSR1: lock.lock(.signal)
            case SIGUSR2: lock.unlock()
            default: requestUnmount()
            }
        }
    }

    /// Serves until unmounted; ends the process. Every byte is flushed when it has ended.
    /// - Parameter whenReady: called once the control socket is served too.
    func serve(whenReady: () -> Void) -> Never {
        do {
            try control?.start()
        } catch {
            logger.warning("no status: \(error)")
        }
        logger.info("mounted \(request.vaultPath.shown) at \(request.mountpoint.shown)")
        whenReady()
        session.run(whenUnmounted: lock.stop)
        logger.info("unmounted \(request.mountpoint.shown)")
        // Clients stay connected: that the kernel hangs up on them tells them that this process and its keys are gone.
        control?.removeSocket()
        guardian?.rest()
        // Not exit(3): what it cleans up (libcrypto's state) other threads may still be using.
        _exit(0)
    }

    func requestUnmount() {
        // A lock waits for pages that only workers can write back: it has to end while they are there.
        lock.stop()
        session.requestUnmount()
    }

    /// Serves in this process, logging to stderr. Does not return but to throw.
    static func runInForeground(_ request: MountRequest, masterKey: SecretBytes) throws -> Never {
        LoggingSystem.bootstrap(StreamLogHandler.standardError)
        let daemon = try Daemon(request, masterKey: masterKey, guardian: Guardian.start())
        daemon.serve {}
    }

    /// Without a control socket the mount works, only status and waiting do not: a warning, not a failure.
    private static func makeControl(
        _ request: MountRequest, reporter: StatusReporter, logger: Logger
    ) -> ControlServer? {
        do throws(ControlError) {
            return try ControlServer(directory: RuntimeDirectory.make(), mountpoint: request.mountpoint.bytes) {
                request, reply in
                reporter.answer(request, reply: reply)
            }
        } catch {
            logger.warning("no status: \(error)")
            return nil
        }
    }
}
