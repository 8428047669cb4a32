internal import ArgumentParser
internal import Control
internal import Glibc
internal import LinuxSystem
internal import SystemPackage
internal import VaultStore

/// `vaultfs unmount MOUNTPOINT`
struct UnmountCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "unmount", abstract: "Unmount a vault: flush everything, wipe the keys.",
        discussion: "Returns when the daemon has ended: all is on disk, and no key is left in memory.",
        aliases: ["umount"])

    @Argument(help: "Where the vault is mounted.")
    var mountpoint: PathArgument

    @Option(help: ArgumentHelp("How long to wait for the daemon to end; 300, with --force 10.", valueName: "seconds"))
    var timeout: Int?

    @Flag(
        help: """
            Unmount also what is in use, or hangs because the vault's store does not answer: programs that use it get \
            errors, and a daemon that has not ended in time is killed. What was not fsynced may be lost.
            """)
    var force = false

    private var seconds: Int { timeout ?? (force ? 10 : 300) }

    func validate() throws {
        guard (0...86400).contains(seconds) else { throw ValidationError("--timeout \(seconds) is not in 0…86400") }
    }

    func run() throws {
        let mount = try DaemonAccess.mount(at: mountpoint.path)
        // Before unmounting: the daemon's end is seen on this connection. One that does not answer may be dead.
        let daemon = try? DaemonAccess.connect(mount)
        if force { try Unmounting.force(mount.path) } else { try Unmounting.unmount(mount.path) }
        if let daemon { try wait(for: daemon, mountpoint: mount.path) }
    }

    private func wait(for daemon: ControlClient, mountpoint: FilePath) throws(CommandFailure) {
        let silence: Duration = .seconds(min(2, seconds))
        if daemon.waitUntilClosed(timeout: silence) { return }
        // A mount namespace that was made meanwhile (a container, a service) has a copy of the mount, and keeps the daemon
        // and its keys: it is to end all the same. One that is only still writing takes no notice.
        // 0 is a daemon that this process-id namespace does not show (unix(7), SO_PEERCRED), and would be all of us.
        if daemon.processID > 0 { kill(daemon.processID, SIGTERM) }
        if Console.isStandardErrorTerminal {
            Console.writeToStandardError("unmounted; waiting for everything to reach the disk…\n")
        }
        if daemon.waitUntilClosed(timeout: .seconds(seconds) - silence) { return }
        if force, daemon.processID > 0 {
            kill(daemon.processID, SIGKILL)
            if daemon.waitUntilClosed(timeout: Self.dyingTime) { return }
        }
        throw CommandFailure(
            .notEnded,
            "\(mountpoint.shown) is unmounted, but process \(daemon.processID) has not ended after \(seconds) s: "
                + (force
                    ? "the vault's store does not answer, and the kernel lets it go only when it does"
                    : "it may still be writing to the vault; 'kill -KILL \(daemon.processID)' ends it"))
    }

    /// How long a process takes that was killed.
    private static let dyingTime: Duration = .seconds(5)
}
