internal import Control
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
/// The request is in a file in memory, and the secret goes through a socket, to keep them out of the arguments and the
/// environment. If the command dies before the mount is ready (Ctrl-C), the daemon finds the socket closed, and gives
/// up.
package enum DaemonLaunch {
    /// The first argument of a daemon. The others are only for ps(1): the command, the source, the mountpoint.
    package static let argument = "--daemon"
    /// The daemon's task, except for the secret.
    private struct DaemonTask<Source: MountSource>: Codable {
        let request: MountRequest
        let source: Source
        let secretSize: Int
    }

    private enum Outcome: Codable {
        /// Has warnings for the user, a line each.
        case ready(warnings: [String])
        case failed(DaemonFailure)
    }

    /// The daemon's end of the socket: the first descriptor after stdio.
    private static let channelDescriptor: Int32 = 3
    /// The mountpoint in the daemon: a directory, open as a path.
    private static let mountpointDescriptor: Int32 = 4
    /// The file with the task.
    private static let taskDescriptor: Int32 = 5

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
        let channel: Descriptor
        do {
            var ends: [Int32] = [-1, -1]
            try retrying { socketpair(AF_UNIX, Int32(SOCK_STREAM.rawValue | SOCK_CLOEXEC.rawValue), 0, &ends) }
            channel = Descriptor(owning: ends[0])
            let other = Descriptor(owning: ends[1])
            let task = DaemonTask(request: request, source: source, secretSize: secret.count)
            let file = try Descriptor(memoryFile: "vaultfs-task", jsonLine(task))
            child = try ChildProcess.spawn(
                path: "/proc/self/exe",
                arguments: ["vaultfs", argument, source.command].map { Array($0.utf8) }
                    + [request.source.bytes, request.mountpoint.bytes],
                descriptors: [
                    (other.fd, channelDescriptor), (mountpoint.fd, mountpointDescriptor), (file.fd, taskDescriptor),
                ])
        } catch {
            let reason = (error as? StoreError)?.reason ?? "\(error)"
            throw MountError(.failure, reason: "cannot start the background process: \(reason)")
        }
        // Ignore errors here: if the child has died, the outcome below is missing.
        _ = try? secret.withUnsafeBytes { (bytes) throws(StoreError) in
            try retrying { send(channel.fd, bytes.baseAddress, bytes.count, Int32(MSG_NOSIGNAL)) }
        }
        let outcome = (try? channel.readToEnd(limit: 1 << 20)).flatMap {
            try? JSONDecoder().decode(Outcome.self, from: Data($0))
        }
        switch outcome {
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
        var channel: Descriptor? = Descriptor(owning: channelDescriptor)
        let mountpoint = Descriptor(owning: mountpointDescriptor)
        for descriptor in [channelDescriptor, mountpointDescriptor] { _ = fcntl(descriptor, F_SETFD, FD_CLOEXEC) }
        DaemonLog.beginSyslog()
        // Start the guardian before there are keys and threads.
        let guardian = Guardian.start()
        do {
            let encoded = try Descriptor(owning: taskDescriptor).readToEnd(limit: 1 << 24) ?? []
            // The decoder throws for a lock file whose directory has changed, for example.
            let task = try JSONDecoder().decode(DaemonTask<Source>.self, from: Data(encoded))
            let secret = try SecretBytes(count: task.secretSize) { (buffer) throws(CryptoError) in
                // A receive of no bytes would wait for some.
                guard
                    buffer.isEmpty
                        || recv(channelDescriptor, buffer.baseAddress, buffer.count, Int32(MSG_WAITALL))
                            == buffer.count
                else { throw .invalidInput("no secret") }
            }
            let daemon = try Daemon(
                task.request, task.source, on: mountpoint, secret: secret, guardian: guardian,
                isWanted: { channel.map { !isAbandoned($0) } ?? false })
            // Leave the working directory, so that its file system can be unmounted. Later would be too late, because
            // each worker takes a copy of the working directory (unshare(2), CLONE_FS).
            chdir("/")
            try daemon.serve { warnings in
                ProcessSetup.detach()
                do {
                    if let channel { try writeAll(jsonLine(Outcome.ready(warnings: warnings)), to: channel.fd) }
                } catch {
                    daemon.logger.notice("the process that requested the mount has ended: unmounting")
                    kill(getpid(), SIGTERM)
                }
                channel = nil
            }
        } catch {
            let failure = Source.failure(error)
            // If the command has died, only the exit code is left to report the failure.
            if let channel { try? writeAll(jsonLine(Outcome.failed(failure)), to: channel.fd) }
            // Avoid exit(3), because threads of an ended mount may still use the state that it cleans up.
            _exit(failure.exitCode)
        }
    }

    /// Returns true if the other side has closed the channel.
    private static func isAbandoned(_ channel: Descriptor) -> Bool {
        var entry = pollfd(fd: channel.fd, events: 0, revents: 0)
        return poll(&entry, 1, 0) > 0 && entry.revents & Int16(POLLHUP | POLLERR) != 0
    }
}
