internal import BackingStore
internal import Glibc
internal import SystemPackage
internal import VaultCrypto
internal import VaultStore

/// Starts the daemon: this program anew, in a session of its own (Swift has no fork(2)).
///
/// The master key goes through a socket, never in the arguments or the environment. When this process dies before the
/// mount is ready (Ctrl-C), the daemon sees the socket close and gives up.
enum DaemonLaunch {
    /// Returns when the mount is ready.
    /// - Throws: what the daemon says, or that it died.
    static func run(_ request: MountRequest, masterKey: SecretBytes) throws(CommandFailure) {
        let child: pid_t
        let channel: DaemonChannel
        do throws(Errno) {
            let (own, other) = try DaemonChannel.makePair()
            channel = own
            defer { other.close() }
            child = try ChildProcess.spawn(
                path: "/proc/self/exe", arguments: arguments(request),
                descriptors: [(other.descriptor, channelDescriptor)], isSessionLeader: true)
        } catch {
            throw CommandFailure(.failure, "cannot start the background process: \(error)")
        }
        defer { channel.close() }
        // A child that has gone is told by the outcome that does not come.
        try? channel.send(masterKey: masterKey)
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

    /// Read again by `MountCommand`; also what ps(1) shows.
    private static func arguments(_ request: MountRequest) -> [[UInt8]] {
        var words = ["--daemon-channel=\(channelDescriptor)", "--cache-size=\(request.cacheSize)"]
        let options = request.fuseOptions + (request.isReadOnly ? ["ro"] : [])
        if request.bypassesKernelCache { words.append("--no-kernel-cache") }
        if !options.isEmpty { words += ["-o", options.joined(separator: ",")] }
        return ["vaultfs", "mount"].map { Array($0.utf8) } + [request.vaultPath.bytes, request.mountpoint.bytes]
            + words.map { ProcessArguments.bytes(of: $0) } + request.lock.arguments
    }
}
