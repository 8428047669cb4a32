internal import Glibc
internal import LinuxSystem
internal import Locking
internal import SystemPackage
internal import VaultCrypto
internal import VaultStore

/// Starts the daemon: this program anew (Swift has no fork(2)).
///
/// It stays in our process group until it has mounted: autofs lets that of the manager who asked for a mount reach the mountpoint,
/// and keeps all others waiting for the mount (autofs_oz_mode() of fs/autofs/autofs_i.h; systemd's automount units).
///
/// The secret goes through a socket, never in the arguments or the environment. When this process dies before the
/// mount is ready (Ctrl-C), the daemon sees the socket close and gives up.
enum DaemonLaunch {
    /// Returns when the mount is ready; in the foreground, not at all.
    /// - Throws: what the daemon says, or that it died.
    static func run(
        _ subject: any MountSubject, _ request: MountRequest, secret: SecretBytes, inForeground: Bool
    ) throws {
        if inForeground { try Daemon.runInForeground(subject, request, secret: secret) }
        try runInBackground(subject, request, secret: secret)
        report(request)
    }

    /// A mount on which everything is refused looks broken, unless somebody says why.
    private static func report(_ request: MountRequest) {
        for file in request.lock.lockFiles {
            let state = file.look()
            if state.isLocked {
                Console.report("\(request.mountpoint.shown) is locked: \(file.describe(state))")
            }
        }
    }

    private static func runInBackground(
        _ subject: any MountSubject, _ request: MountRequest, secret: SecretBytes
    ) throws(CommandFailure) {
        let child: pid_t
        let channel: DaemonChannel
        do throws(Errno) {
            let (own, other) = try DaemonChannel.makePair()
            channel = own
            defer { other.close() }
            child = try ChildProcess.spawn(
                path: "/proc/self/exe", arguments: arguments(subject, request),
                descriptors: [(other.descriptor, channelDescriptor)])
        } catch {
            throw CommandFailure(.failure, "cannot start the background process: \(error)")
        }
        defer { channel.close() }
        // A child that has gone is told by the outcome that does not come.
        try? channel.send(secret: secret)
        switch channel.receiveOutcome() {
        case .ready: return
        case .failed(let failure):
            _ = ChildProcess.wait(for: child)
            throw failure
        case nil:
            let outcome = ChildProcess.wait(for: child)
            throw CommandFailure(.cannotMount, "the background process \(outcome) before the mount was ready")
        }
    }

    /// Where the child finds the channel: the first descriptor behind stdio.
    private static let channelDescriptor: Int32 = 3

    /// Read again by the same command; also what ps(1) shows.
    private static func arguments(_ subject: any MountSubject, _ request: MountRequest) -> [[UInt8]] {
        var words = ["--daemon-channel=\(channelDescriptor)", "--cache-size=\(request.cacheSize)"]
        let options =
            request.fuseOptions + request.accessTimeOptions + (request.isReadOnly ? ["ro"] : [])
            + (request.isShared ? ["shared"] : [])
        if request.bypassesKernelCache { words.append("--no-kernel-cache") }
        if request.guardsMountpoint { words.append("--guard-mountpoint") }
        if !options.isEmpty { words += ["-o", options.joined(separator: ",")] }
        return [Array("vaultfs".utf8)] + subject.words + [request.source.bytes, request.mountpoint.bytes]
            + words.map { ProcessArguments.bytes(of: $0) } + request.lock.arguments
    }
}
