internal import FoundationEssentials
internal import FuseSession
internal import Glibc
package import LinuxSystem
internal import Logging
internal import SystemPackage
package import VaultCrypto

/// Starts the daemon: this program again, because Swift has no fork(2).
///
/// The daemon stays in the command's process group until it has mounted, because autofs lets only this group reach the
/// mountpoint while it waits for the mount (autofs_oz_mode() of fs/autofs/autofs_i.h; systemd's automount units).
///
/// The request and the secret go through a socket, to keep them out of the arguments and the environment. If the
/// command dies before the mount is ready (Ctrl-C), the daemon finds the socket closed and gives up.
package enum DaemonLaunch {
    /// The first argument of a daemon. The others are only for ps(1): the command, the source, the mountpoint.
    package static let argument = "--daemon"
    /// The daemon's answer.
    private enum Outcome: Codable {
        /// Has warnings for the user, a line each.
        case ready(warnings: [String])
        case failed(DaemonFailure)
    }

    /// The daemon's end of the channel: the first descriptor after stdio.
    private static let channelDescriptor: Int32 = 3
    /// The mountpoint in the daemon: a directory, open as a path.
    private static let mountpointDescriptor: Int32 = 4

    /// Returns once the mount is ready, with warnings for the user, a line each. In the foreground, returns only by
    /// throwing.
    /// - Parameter mountpoint: the checked mountpoint, open.
    /// - Throws: the daemon's failure (`DaemonFailure`), or `MountError` of the kind `cannotMount` if it has died.
    package static func run(
        _ request: MountRequest, _ source: some MountSource, on mountpoint: Descriptor, secret: SecretBytes,
        inForeground: Bool
    ) throws -> [String] {
        guard inForeground else { return try runInBackground(request, source, on: mountpoint, secret: secret) }
        DaemonLog.beginStandardError()
        let daemon = try Daemon(request, source, on: mountpoint, secret: secret, guardian: Guardian.start())
        try daemon.serve { _ in ReadinessNotice.send() }
    }

    private static func runInBackground(
        _ request: MountRequest, _ source: some MountSource, on mountpoint: Descriptor, secret: SecretBytes
    ) throws -> [String] {
        let child: pid_t
        let channel: DaemonChannel
        do throws(StoreError) {
            let (own, other) = try DaemonChannel.makePair()
            channel = own
            child = try ChildProcess.spawn(
                path: "/proc/self/exe",
                arguments: ["vaultfs", argument, source.command].map { Array($0.utf8) }
                    + [request.source.bytes, request.mountpoint.bytes],
                descriptors: [(other.socket.fd, channelDescriptor), (mountpoint.fd, mountpointDescriptor)])
        } catch {
            throw MountError(.failure, reason: "cannot start the background process: \(error.errno)")
        }
        // Ignore errors here: if the child has died, the outcome below is missing.
        try? channel.send(request)
        try? channel.send(source)
        try? secret.withUnsafeBytes { bytes throws(StoreError) in try channel.send(bytes) }
        switch try? channel.receive(Outcome.self) {
        case .ready(let warnings): return warnings
        case .failed(let failure):
            _ = ChildProcess.wait(for: child)
            throw failure
        case nil:
            let end = ChildProcess.wait(for: child)
            throw MountError(.cannotMount, reason: "the background process \(end) before the mount was ready")
        }
    }

    /// Runs the background process: takes its request from the channel, mounts, answers and serves. The program calls
    /// this if its first argument is `argument`.
    package static func serve<Source: MountSource>(_ type: Source.Type) -> Never {
        ProcessSetup.setName()
        ProcessSetup.protectMemory()
        var channel: DaemonChannel? = DaemonChannel(socket: Descriptor(owning: channelDescriptor))
        let mountpoint = Descriptor(owning: mountpointDescriptor)
        for descriptor in [channelDescriptor, mountpointDescriptor] { _ = fcntl(descriptor, F_SETFD, FD_CLOEXEC) }
        DaemonLog.beginSyslog()
        // Start the guardian before there are keys and threads.
        let guardian = Guardian.start()
        do {
            guard let request = try channel?.receive(MountRequest.self),
                let source = try channel?.receive(Source.self), let secret = channel?.receiveSecret()
            else { exit(MountError.Kind.failure.rawValue) }
            let daemon = try Daemon(
                request, source, on: mountpoint, secret: secret, guardian: guardian,
                isWanted: { channel?.isAbandoned == false })
            // Leave the working directory, so that its file system can be unmounted. Later would be too late, because
            // each worker takes a copy of the working directory (unshare(2), CLONE_FS).
            chdir("/")
            try daemon.serve { warnings in
                ProcessSetup.detach()
                do {
                    try channel?.send(Outcome.ready(warnings: warnings))
                } catch {
                    daemon.logger.notice("the process that requested the mount has ended: unmounting")
                    kill(getpid(), SIGTERM)
                }
                channel = nil
            }
        } catch {
            let failure = Source.failure(error)
            // If the command has died, only the exit code is left to report the failure.
            try? channel?.send(Outcome.failed(failure))
            // Avoid exit(3), because threads of an ended mount may still use the state that it cleans up.
            _exit(failure.exitCode)
        }
    }
}

/// The socket between a mount command and its daemon. The command sends a request and a secret, and the daemon answers
/// with its failure, or with `ready`. Each message is its length in four bytes, and its bytes. One thread at a time.
private struct DaemonChannel {
    let socket: Descriptor

    /// Returns both ends of a new channel, close-on-exec.
    static func makePair() throws(StoreError) -> (DaemonChannel, DaemonChannel) {
        var ends: [Int32] = [-1, -1]
        try retrying { socketpair(AF_UNIX, Int32(SOCK_STREAM.rawValue | SOCK_CLOEXEC.rawValue), 0, &ends) }
        return (DaemonChannel(socket: Descriptor(owning: ends[0])), DaemonChannel(socket: Descriptor(owning: ends[1])))
    }

    func send(_ message: some Encodable) throws(StoreError) {
        guard let encoded = try? JSONEncoder().encode(message) else {
            preconditionFailure("internal error: a message to or from a daemon cannot be encoded")
        }
        try Array(encoded).withBytes { bytes throws(StoreError) in try send(bytes) }
    }

    func send(_ bytes: UnsafeRawBufferPointer) throws(StoreError) {
        let length = withUnsafeBytes(of: UInt32(bytes.count)) { Array($0) }
        try writeAll(length, to: socket.fd)
        var rest = bytes
        while !rest.isEmpty { rest = rest.slice(try retrying { write(socket.fd, rest.baseAddress, rest.count) }...) }
    }

    /// Waits for a message. Returns nil if the other side has hung up.
    /// - Throws: the decoder's errors, such as that of a lock file whose directory has changed.
    func receive<Message: Decodable>(_ type: Message.Type) throws -> Message? {
        guard let bytes = receiveSecret() else { return nil }
        return try JSONDecoder().decode(type, from: bytes.withUnsafeBytes { Data($0) })
    }

    /// Waits for a message, and returns it in memory for secrets. Returns nil if the other side has hung up.
    func receiveSecret() -> SecretBytes? {
        var length: UInt32 = 0
        guard withUnsafeMutableBytes(of: &length, { receive($0) }) else { return nil }
        return try? SecretBytes(count: Int(length)) { (buffer) throws(CryptoError) in
            guard receive(buffer) else { throw .invalidInput("no secret") }
        }
    }

    private func receive(_ buffer: UnsafeMutableRawBufferPointer) -> Bool {
        var rest = buffer
        while !rest.isEmpty {
            guard let count = try? retrying({ read(socket.fd, rest.baseAddress, rest.count) }), count > 0 else {
                return false
            }
            rest = rest.slice(count...)
        }
        return true
    }

    /// True if the other side has closed the channel.
    var isAbandoned: Bool {
        var entry = pollfd(fd: socket.fd, events: 0, revents: 0)
        return poll(&entry, 1, 0) > 0 && entry.revents & Int16(POLLHUP | POLLERR) != 0
    }
}
