internal import CLinux
internal import Control
internal import FileSystem
internal import FuseSession
internal import Glibc
internal import LinuxSystem
internal import Locking
internal import Logging
internal import SystemPackage
internal import VaultCrypto
internal import VaultStore

/// One mount being served: what it shows, its lock, the FUSE session, the control socket, the signals.
final class Daemon: Sendable {
    let logger: Logger
    private let request: MountRequest
    private let contents: MountContents
    private let session: FuseSession
    /// Where it was mounted, and as what.
    private let place: MountedPlace
    private let lock: MountLock
    private let control: ControlServer?
    private let guardian: Guardian?

    /// Opens what is to be mounted, and mounts. Signals that end the daemon are blocked from here on,
    /// in this thread and all that follow: call it before any thread was made. The secret is forgotten on the way.
    /// - Parameter isWanted: asked before the mount is made.
    init(
        _ subject: any MountSubject, _ request: MountRequest, secret: SecretBytes, guardian: Guardian?,
        isWanted: () -> Bool = { true }
    ) throws {
        self.guardian = guardian
        Signals.block(Signals.ending + Signals.locking)
        ProcessSetup.raiseLimits()
        let logger = Logger(label: "vaultfs")
        self.logger = logger
        self.request = request
        contents = try subject.open(request, secret: secret) { logger.notice("\($0)") }
        do {
            guard isWanted() else { throw CommandFailure(.failure, "the process that requested the mount has ended") }
            session = try Self.mount(contents.fileSystem, request, logger: logger)
        } catch {
            // Without this, the next mount would find an unclean end.
            contents.fileSystem.shutDown()
            throw error
        }
        // Without, the mount is as good; only nobody helps a daemon that is killed and cannot die.
        place = MountedPlace(request.mountpoint)
        if let device = place.device { guardian?.watch(over: device) }
        let announcer = MountAnnouncer(mountpoint: request.mountpoint)
        session.onDamage { announcer.announce(.integrityError($0)) }
        do {
            lock = try MountLock(
                request, contents, caches: session, announcer: announcer, logger: logger)
        } catch {
            session.cancel(isInPlace: place.isUnchanged)
            contents.fileSystem.shutDown()
            throw error
        }
        let reporter = StatusReporter(
            request: request, contents: contents, lock: lock, announcer: announcer, session: session)
        control = Self.makeControl(request, reporter: reporter, logger: logger)
        announcer.connect(to: control)
        let shortcomings = MemoryProtection(cacheIsLocked: contents.fileSystem.cache.isLocked).shortcomings
        if !shortcomings.isEmpty {
            logger.warning("memory is not protected as well as it could be: \(shortcomings.joined(separator: "; "))")
        }
        do {
            try takeSignals()
        } catch {
            lock.stop()
            session.cancel(isInPlace: place.isUnchanged)
            contents.fileSystem.shutDown()
            throw error
        }
    }

    private static func mount(
        _ fileSystem: any LockableFileSystem, _ request: MountRequest, logger: Logger
    ) throws -> FuseSession {
        let unwritable = request.guardsMountpoint ? try MountpointGuard(request.mountpoint) : nil
        let mount = { try FuseSession(fileSystem: fileSystem, options: request.mountOptions, logger: logger) }
        return try unwritable?.mounting(log: { logger.warning("\($0)") }, mount) ?? mount()
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
    /// - Parameter whenReady: called once the mount has answered a request and the control socket is served.
    /// - Throws: if the mount ended before it answered a request.
    func serve(whenReady: () -> Void) throws(MountError) -> Never {
        // What opening the vault, or reading its secret, has left.
        linux_scrub_thread()
        do {
            try control?.start()
        } catch {
            logger.warning("no status: \(error)")
        }
        let served = Result { () throws(MountError) in
            try session.run(
                whenAnswering: {
                    logger.info("mounted \(request.source.shown) at \(request.mountpoint.shown)")
                    whenReady()
                }, whenUnmounted: lock.stop, isInPlace: place.isUnchanged,
                // The guardian stops once the connection has ended. Its number may then belong to another mount.
                whenClosed: { guardian?.rest() })
        }
        // Clients stay connected: that the kernel hangs up on them tells them that this process and its keys are gone.
        control?.removeSocket()
        try served.get()
        logger.info("unmounted \(request.mountpoint.shown)")
        // Not exit(3): what it cleans up (libcrypto's state) other threads may still be using.
        _exit(0)
    }

    func requestUnmount() {
        // A lock waits for pages that only workers can write back: it has to end while they are there.
        lock.stop()
        session.requestUnmount()
    }

    /// Serves in this process, logging to stderr, and tells a service manager when it is ready. Does not return but to throw.
    static func runInForeground(
        _ subject: any MountSubject, _ request: MountRequest, secret: SecretBytes
    ) throws -> Never {
        LoggingSystem.bootstrap(StreamLogHandler.standardError)
        let daemon = try Daemon(subject, request, secret: secret, guardian: Guardian.start())
        try daemon.serve { ReadinessNotice.send() }
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
