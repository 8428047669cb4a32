internal import ArgumentParser
internal import Control
internal import Daemon
internal import FuseSession
internal import Glibc
internal import LinuxSystem
internal import SystemPackage
internal import VaultStore

/// `vaultfs unmount [MOUNTPOINT… | --all]`
struct UnmountCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "unmount", abstract: "Unmount a vault: flush everything, wipe the keys.",
        discussion: """
            Returns when the daemon has ended: everything is on disk, and no key is left in memory. Prints a line for each \
            mount. If it is not known that everything that was written is in place and durable, the exit code is \
            \(FailureCode.notDurable.rawValue), and the message says why.
            """,
        aliases: ["umount"])

    @Argument(
        help: "The mountpoints, or the vaults. They may be left out if you have only one mount.",
        completion: Completions.mounts)
    var mountpoints: [PathArgument] = []

    @Flag(help: "All your mounts, the newest first; as root, every user's.")
    var all = false

    @Option(
        help: ArgumentHelp("Time to wait for the daemon to end; 5m, with --force 10s.", valueName: "duration"),
        transform: DurationArgument.parse)
    var timeout: DurationArgument?

    @Flag(
        help: """
            Unmount even if the mount is in use, or hangs because the vault's store does not answer: programs that use it \
            get errors, and a daemon that has not ended in time is killed. Data without fsync may be lost.
            """)
    var force = false

    private var limit: DurationArgument { timeout ?? DurationArgument(milliseconds: force ? 10_000 : 300_000) }

    func validate() throws {
        guard !all || mountpoints.isEmpty else { throw ValidationError("only one of MOUNTPOINT, --all can be given") }
    }

    func run() throws {
        var failures: [CommandFailure] = []
        for path in try paths() {
            do throws(CommandFailure) { try unmount(MountTable.Entry(at: path)) } catch { failures.append(error) }
        }
        guard let first = failures.first else { return }
        for failure in failures.dropFirst() { Console.report(failure.message) }
        throw first
    }

    private func paths() throws(CommandFailure) -> [FilePath] {
        if !mountpoints.isEmpty { return mountpoints.map(\.path) }
        let mounts = try CommandFailure.mapping(try MountTable.read()).mountsOfThisUser
        // Begin with the newest: a view of a vault's files, or a vault in a vault, keeps the older mount in use.
        if all { return mounts.reversed().map(\.path) }
        let own = mounts.filter { $0.userID == geteuid() }.map(\.path)
        return [try DaemonSearch.only(own, name: \.shown)]
    }

    private func unmount(_ mount: MountTable.Entry) throws(CommandFailure) {
        let wasDead: Bool
        do throws(CommandFailure) { wasDead = try end(mount) } catch {
            // fusermount3 refuses another user's mount without naming the user, so name them here.
            guard error.code == .failure, let owner = MountOwner(of: mount) else { throw error }
            throw CommandFailure(error.code, "\(mount.path.shown): \(owner.refusal(to: "unmount it"))")
        }
        let addition = wasDead ? "; its daemon had ended before" : ""
        Console.confirm("\(mount.path.shown): unmounted\(addition)")
    }

    /// Unmounts, and waits for the daemon's end.
    /// - Returns: true if the daemon had died before. Its record is then left in the vault, but this command succeeds.
    private func end(_ mount: MountTable.Entry) throws(CommandFailure) -> Bool {
        // Find the daemon before the unmount, to see it end.
        let client = try? mount.connect().client
        // Remove only our own mountpoint. Another user could meanwhile put a directory of ours at the path of theirs.
        let isOwn = mount.userID == geteuid()
        let wasMade = isOwn && (try? client?.status())?.madeMountpoint ?? false
        let wasDead = hasDied(mount, client)
        if !wasDead, let client {
            let process = VaultProcess(id: client.processID)
            defer { if wasMade { Mountpoint.removeMade(mount.path) } }
            try CommandFailure.mapping(try Unmounting.unmount(mount.path, force: force))
            var problems: [String] = []
            var isEndConfirmed = false
            let endedItself = try wait(mount, process: client.processID, isDaemon: true) { timeout in
                let isClosed = client.waitUntilClosed(timeout: timeout) { event in
                    if event.isEnd { isEndConfirmed = true }
                    if event.atEnd == true, let reason = event.reason { problems.append(Console.shown(reason)) }
                }
                // Wait for the process, because until it ends, its descriptors keep the store's file system in use.
                return isClosed && (process?.waitUntilEnded(timeout: timeout) ?? true)
            }
            if !problems.isEmpty { throw notDurable(mount, problems.joined(separator: "; ")) }
            if !endedItself, !mount.isReadOnly {
                throw notDurable(mount, "its daemon was killed; \(Self.nextMount)")
            }
            if endedItself, !isEndConfirmed { try checkEnd(mount, client.processID) }
            return false
        }
        let process = VaultProcess(of: mount)
        try CommandFailure.mapping(try Unmounting.unmount(mount.path, force: force))
        if let process {
            _ = try wait(mount, process: process.id, isDaemon: false) { process.waitUntilEnded(timeout: $0) }
        }
        if !wasDead { try checkEnd(mount, process?.id ?? 0) }
        return wasDead
    }

    /// Returns true if the mount's daemon died before the unmount. Otherwise subscribes to its events.
    /// - Parameter client: nil if it cannot be reached.
    private func hasDied(_ mount: MountTable.Entry, _ client: ControlClient?) -> Bool {
        do throws(ControlError) {
            guard let client else { throw .noDaemon }
            _ = try client.send(.events)
            return false
        } catch {
            // A slow daemon may still end well. To check the mount would keep it in use.
            return error != .timedOut && mount.isDead()
        }
    }

    /// Waits for the process, and ends it if necessary and allowed.
    /// - Parameters:
    ///   - isDaemon: true if the process is surely the mount's daemon, which may be ended.
    ///   - hasEnded: waits for the process's end. Returns false after a time.
    /// - Returns: false if the process was killed.
    private func wait(
        _ mount: MountTable.Entry, process: pid_t, isDaemon: Bool, hasEnded: (Duration) -> Bool
    ) throws(CommandFailure) -> Bool {
        let mayEndIt = isDaemon && process > 0
        let limit: Duration = .milliseconds(self.limit.milliseconds)
        let silence = min(.seconds(2), limit)
        if hasEnded(silence) { return true }
        // A mount namespace made meanwhile (a container, a service) has a copy of the mount, which keeps the daemon and
        // its keys. SIGTERM ends the daemon all the same, unless it is still writing.
        if mayEndIt { kill(process, SIGTERM) }
        if Console.isStandardErrorTerminal {
            Console.writeToStandardError("unmounted; waiting for everything to reach the disk…\n")
        }
        if hasEnded(limit - silence) { return true }
        if force, mayEndIt {
            kill(process, SIGKILL)
            if hasEnded(Self.dyingTime) { return false }
        }
        throw CommandFailure(
            .notEnded,
            "\(mount.path.shown) is unmounted, but process \(process) has not ended after \(self.limit): "
                + (force && mayEndIt
                    ? "the vault's store does not answer, and the process cannot end before it does"
                    : "it may still be writing to the vault; 'kill -KILL \(process)' ends it"))
    }

    /// Checks the vault after a daemon that has not reported its end, such as a killed one.
    /// - Parameter process: 0 if unknown.
    /// - Throws: code `notDurable` unless the vault shows that everything is in place.
    private func checkEnd(_ mount: MountTable.Entry, _ process: pid_t) throws(CommandFailure) {
        let vault = try? VaultDirectory.open(FilePath(bytes: mount.source))
        switch vault?.wasLeftUnclean(by: process > 0 ? process : nil) {
        case true?: throw notDurable(mount, "its daemon was killed, or met an error; \(Self.nextMount)")
        case false?: return
        // A view, or a mount without any writes.
        case nil where mount.isReadOnly: return
        case nil: throw notDurable(mount, "its daemon cannot be reached, or the vault cannot be read")
        }
    }

    private func notDurable(_ mount: MountTable.Entry, _ reason: String) -> CommandFailure {
        CommandFailure(.notDurable, "\(mount.path.shown): \(MountError.notKnownInPlace): \(reason)")
    }

    private static let nextMount =
        "the next mount puts in place what vaultfs.log has, and 'vaultfs verify' names what is lost"

    private static let dyingTime: Duration = .seconds(5)
}
