internal import Glibc
internal import LinuxSystem
internal import Locking
internal import Logging
internal import SystemPackage
internal import VaultCrypto

/// Starts the daemon: this program again, because Swift has no fork(2).
///
/// The daemon stays in the command's process group until it has mounted. While autofs waits for a mount, it lets only that
/// group reach the mountpoint (autofs_oz_mode() of fs/autofs/autofs_i.h; systemd's automount units).
///
/// The order and the secret go through a socket, not in the arguments or the environment. If the command dies before the
/// mount is ready (Ctrl-C), the daemon sees that the socket is closed and gives up.
enum DaemonLaunch {
    /// The first argument of a daemon. The others only show in ps(1): the command, the source, the mountpoint.
    static let argument = "--daemon"
    /// The daemon's end of the channel: the first descriptor behind stdio.
    private static let channelDescriptor: Int32 = 3

    /// Returns when the mount is ready. In the foreground, returns only by throwing.
    static func run(
        _ subject: MountSubject, _ request: MountRequest, secret: SecretBytes, inForeground: Bool
    ) throws {
        let order = DaemonChannel.Order(subject: subject, request: request)
        if inForeground {
            LoggingSystem.bootstrap(StreamLogHandler.standardError)
            let daemon = try Daemon(order, secret: secret, guardian: Guardian.start())
            try daemon.serve { ReadinessNotice.send() }
        }
        try runInBackground(order, secret: secret)
        // Everything on a locked mount is refused.
        for file in request.lock.lockFiles {
            let state = file.look()
            if state.isLocked {
                Console.report("\(request.mountpoint.shown) is locked: \(file.describe(state))")
            }
        }
    }

    /// - Throws: the daemon's failure, or `cannotMount` if it died.
    private static func runInBackground(_ order: DaemonChannel.Order, secret: SecretBytes) throws(CommandFailure) {
        let child: pid_t
        let channel: DaemonChannel
        let request = order.request
        do throws(Errno) {
            let (own, other) = try DaemonChannel.makePair()
            channel = own
            defer { other.close() }
            child = try ChildProcess.spawn(
                path: "/proc/self/exe",
                arguments: ["vaultfs", argument, order.subject.command].map { Array($0.utf8) }
                    + [request.source.bytes, request.mountpoint.bytes],
                descriptors: [(other.descriptor, channelDescriptor)])
        } catch {
            throw CommandFailure(.failure, "cannot start the background process: \(error)")
        }
        defer { channel.close() }
        // If the child has died, no outcome arrives.
        try? channel.send(order)
        try? channel.send(secret)
        let outcome = try? channel.receive(DaemonChannel.Outcome.self)
        if let outcome, outcome.error == nil { return }
        let end = ChildProcess.wait(for: child)
        guard let message = outcome?.error else {
            throw CommandFailure(.cannotMount, "the background process \(end) before the mount was ready")
        }
        throw CommandFailure(outcome?.code.flatMap(FailureCode.init) ?? .failure, message)
    }

    /// The background process: takes its order from the channel, mounts, answers and serves.
    static func serve() -> Never {
        ProcessSetup.setName()
        ProcessSetup.protectMemory()
        ProcessSetup.closeInheritedDescriptors(above: channelDescriptor)
        let channel = DaemonChannel(descriptor: channelDescriptor)
        _ = fcntl(channelDescriptor, F_SETFD, FD_CLOEXEC)
        LoggingSystem.bootstrap { label in SyslogHandler(label: label) }
        // Before there are keys and threads.
        let guardian = Guardian.start()
        do {
            guard let order = try channel.receive(DaemonChannel.Order.self), let secret = channel.receiveSecret() else {
                exit(FailureCode.failure.rawValue)
            }
            let daemon = try Daemon(order, secret: secret, guardian: guardian, isWanted: { !channel.isAbandoned })
            ProcessSetup.leaveDirectory()
            try daemon.serve {
                ProcessSetup.detach()
                do {
                    try channel.send(DaemonChannel.Outcome())
                } catch {
                    daemon.logger.notice("the process that requested the mount has ended: unmounting")
                    daemon.requestUnmount()
                }
                channel.close()
            }
        } catch {
            let failure = CommandFailure(any: error) ?? CommandFailure(.failure, "\(error)")
            // If the command has died, the exit code is all there is.
            try? channel.send(DaemonChannel.Outcome(error: failure.message, code: failure.code.rawValue))
            // Not exit(3): it cleans up state that threads of a mount that was made and ended may still use.
            _exit(failure.code.rawValue)
        }
    }
}
