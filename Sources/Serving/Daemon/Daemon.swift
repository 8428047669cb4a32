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

/// One mount being served: its source, lock, FUSE session, control socket and signals.
final class Daemon: Sendable {
    let logger: Logger
    private let request: MountRequest
    private let opened: any OpenedSource
    private let announcer: MountAnnouncer
    private let session: FuseSession
    /// `st_dev` of the mount. Unique while the mount exists. 0 if unknown.
    private let device: UInt64
    private let lock: MountLock
    private let reporter: StatusReporter
    private let control: ControlServer?
    private let idleUnmount: IdleUnmount?

    /// Opens the source and mounts it. Forgets the secret. Blocks the ending signals in this thread, which later
    /// threads inherit, so this must be the only thread yet.
    /// - Parameters:
    ///   - mountpoint: the checked mountpoint, open.
    ///   - isWanted: called before the mount is made.
    /// - Throws: an error known to `Source.failure`.
    init<Source: MountSource>(
        _ request: MountRequest, _ source: Source, on mountpoint: Descriptor, secret: SecretBytes,
        guardian: Guardian?, isWanted: () -> Bool = { true }
    ) throws {
        Signals.block(Signals.ending + Signals.locking)
        ProcessSetup.raiseLimits()
        var logger = Logger(label: "vaultfs")
        logger.logLevel = request.logLevel
        self.logger = logger
        let announcer = MountAnnouncer(mountpoint: request.mountpoint)
        self.announcer = announcer
        opened = try source.open(request, secret: secret, logger: logger) { [logger] problem in
            logger.notice("\(problem)")
            announcer.announce(.problem(problem, isAtEnd: false))
        }
        var request = request
        request.options.isReadOnly = opened.isReadOnly
        self.request = request
        // Make the socket before the mount, so that everyone who sees the mount finds its socket.
        let control = Self.makeControl(request, logger)
        self.control = control
        announcer.connect(to: control)
        do {
            guard isWanted() else {
                throw MountError(.failure, reason: "the process that requested the mount has ended")
            }
            session = try Self.mount(opened.fileSystem, request, on: mountpoint, logger: logger)
            let device = MountTable.device(at: request.mountpoint)
            self.device = UInt64(device ?? 0)
            // The guardian only helps if the daemon is killed but cannot die.
            if let device { guardian?.watch(over: device) }
            session.onDamage { [announcer] in announcer.announce(.integrityError($0)) }
            do {
                lock = try MountLock(request, opened, caches: session, announcer: announcer, logger: logger)
                try Self.handleSignals(lock, session)
            } catch {
                session.cancel(device: self.device)
                throw error
            }
            reporter = StatusReporter(
                version: Source.version, request: request, opened: opened, lock: lock, announcer: announcer,
                session: session)
            idleUnmount = Self.makeIdleUnmount(request, opened, session, device, logger)
        } catch {
            control?.removeSocket()
            // Otherwise the next mount would find an unclean end.
            opened.fileSystem.shutDown()
            throw error
        }
        logWarnings()
    }

    /// Returns nil on failure: without a control socket the mount works, and obeys signals and lock files.
    private static func makeControl(_ request: MountRequest, _ logger: Logger) -> ControlServer? {
        do throws(ControlError) {
            return try ControlServer(
                directory: RuntimeDirectory.make, mountpoint: request.mountpoint.bytes,
                log: { logger.notice("\($0)") })
        } catch {
            logger.warning("no status: \(error)")
            return nil
        }
    }

    private static func makeIdleUnmount(
        _ request: MountRequest, _ opened: any OpenedSource, _ session: FuseSession, _ device: dev_t?, _ logger: Logger
    ) -> IdleUnmount? {
        request.options.idleUnmountMilliseconds.map { delay in
            IdleUnmount(delay: delay, mountpoint: request.mountpoint, gate: opened.fileSystem.gate, logger: logger) {
                // Check the mountpoint too, because another mount may already have the device number of an ended one.
                session.isConnected && device != nil && MountTable.device(at: request.mountpoint) == device
            }
        }
    }

    private func logWarnings() {
        for warning in opened.warnings { logger.warning("\(warning)") }
        let shortcomings = MemoryProtection(cacheIsLocked: opened.fileSystem.cache.isLocked).shortcomings
        if !shortcomings.isEmpty {
            logger.warning("memory is not protected as well as it could be: \(shortcomings.joined(separator: "; "))")
        }
    }

    private static func mount(
        _ fileSystem: any LockableFileSystem, _ request: MountRequest, on mountpoint: Descriptor, logger: Logger
    ) throws -> FuseSession {
        try Mountpoint.checkUnmoved(mountpoint, request.mountpoint)
        let options = request.options
        let unwritable =
            options.guardsMountpoint
            ? try MountpointGuard(mountpoint, request.mountpoint, makesImmutable: !options.makesMountpoint) : nil
        let mount = {
            try FuseSession(fileSystem: fileSystem, options: request.sessionOptions, on: mountpoint, logger: logger)
        }
        let session = try unwritable?.mounting(log: { logger.warning("\($0)") }, mount) ?? mount()
        // Replace the descriptor, which would count as a use of the mount. The callers keep it until this process ends.
        if let nothing = try? Descriptor(path: "/dev/null", flags: O_RDONLY) {
            dup2(nothing.fd, mountpoint.fd)
            _ = fcntl(mountpoint.fd, F_SETFD, FD_CLOEXEC)
        }
        return session
    }

    /// Starts the control socket once the mount has answered, because clients with its status may rely on the mount.
    /// Earlier clients wait.
    private func startControl() {
        do throws(ControlError) {
            try control?.start(handler: reporter.answer)
        } catch {
            logger.warning("no status: \(error)")
        }
    }

    /// Sets the read-ahead. Called after the connection's start, which also does (process_init_reply, fs/fuse/inode.c).
    /// - Returns: a warning if the setting failed.
    private func setReadAhead() -> String? {
        guard let bytes = request.options.readAhead, device != 0 else { return nil }
        // The file is documented in the kernel's sysfs-class-bdi.
        let settings = FilePath("/sys/class/bdi/\(linux_major(device)):\(linux_minor(device))/read_ahead_kb")
        do throws(StoreError) {
            try Descriptor(path: settings, flags: O_WRONLY).write(Array("\(bytes >> 10)".utf8), at: 0)
            return nil
        } catch {
            return "read-ahead stays as it is: \(error.reason); it takes root, as in fstab"
        }
    }

    private static func handleSignals(_ lock: MountLock, _ session: FuseSession) throws(MountError) {
        do throws(MountError) {
            try Signals.onArrival(of: Signals.ending + Signals.locking) { number in
                switch number {
                case SIGUSR1: lock.lock(.signal)
                case SIGUSR2: lock.unlock()
                default:
                    // A lock waits for pages that only workers can write back, so end it while they run.
                    lock.stop()
                    session.requestUnmount()
                }
            }
        } catch {
            lock.stop()
            throw error
        }
    }

    /// Serves until unmounted, and ends the process. By then everything is flushed. Otherwise the log, the subscribers
    /// and the exit code report it.
    /// - Parameter whenReady: called once the mount has answered a request and the control socket is served, with
    ///   warnings for the user who mounts.
    /// - Throws: if the mount ended before it answered a request.
    func serve(whenReady: (_ warnings: [String]) -> Void) throws(MountError) -> Never {
        // The stack has remains of the secret and of the vault's opening.
        linux_scrub_thread()
        let served = Result { () throws(MountError) in
            try session.run(
                whenAnswering: {
                    startControl()
                    let warning = setReadAhead()
                    if let warning { logger.warning("\(warning)") }
                    do throws(StoreError) { try idleUnmount?.start() } catch {
                        logger.warning("it stays mounted when it is idle: cannot start a thread: \(error.errno)")
                    }
                    logger.info("mounted \(request.source.shown) at \(request.mountpoint.shown)")
                    whenReady(opened.warnings + opened.problemsAtStart + [warning].compactMap(\.self))
                },
                whenUnmounted: {
                    idleUnmount?.stop()
                    lock.stop()
                }, device: device)
        }
        // From here on this session reads nothing more, so the list is final.
        let missing = opened.fileSystem.missingData
        for problem in missing {
            logger.error("\(request.mountpoint.shown): \(MountError.notKnownInPlace): \(problem)")
            announcer.announce(.problem(problem, isAtEnd: true))
        }
        // Without this event, the unmount command assumes that the daemon was killed.
        announcer.announceEnd()
        // Clients stay connected. The kernel closes their connections when the process, with its keys, has ended.
        control?.removeSocket()
        try served.get()
        logger.info("unmounted \(request.mountpoint.shown)")
        // Avoid exit(3), because other threads may still use the state that it cleans up (libcrypto's).
        _exit(missing.isEmpty ? 0 : MountError.Kind.notDurable.rawValue)
    }
}
