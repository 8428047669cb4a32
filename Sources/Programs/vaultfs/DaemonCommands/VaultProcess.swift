internal import CLinux
internal import Daemon
internal import Glibc
internal import LinuxSystem
internal import SystemPackage
internal import VaultStore

/// A process that has a vault open, and whose end can be awaited. Any thread.
struct VaultProcess: Sendable {
    let id: pid_t
    /// Readable when the process has ended (pidfd_open(2)).
    private let descriptor: Descriptor

    /// Fails if the process has ended, or is in another process-id namespace.
    init?(id: pid_t) {
        let fd = linux_pidfd_open(id)
        guard id > 0, fd >= 0 else { return nil }
        self.id = id
        descriptor = Descriptor(owning: fd)
    }

    /// Finds the process that holds the flock of the mount's vault, for a mount with an unreachable control socket.
    /// Never signal it, because it is only likely to be the daemon. Nil if it is unknown or has ended, or if the vault
    /// has another mount, which may hold the lock. The writer record is ignored, because an attacker who can write the
    /// store chooses its process.
    init?(of mount: MountTable.Entry) {
        guard let table = try? MountTable.read(), table.mounts(from: mount.source).count == 1,
            let vault = try? VaultDirectory.open(FilePath(bytes: mount.source)),
            let owner = LockOwner.find(descriptor: vault.descriptor), owner.command == "vaultfs"
        else { return nil }
        self.init(id: owner.processID)
    }

    /// Waits for the process's end. Returns false after `timeout`.
    func waitUntilEnded(timeout: Duration) -> Bool {
        let deadline = ContinuousClock.now + timeout
        while ContinuousClock.now < deadline {
            var ended = pollfd(fd: descriptor.fd, events: Int16(POLLIN), revents: 0)
            if poll(&ended, 1, (deadline - .now).pollTimeout) > 0 { return true }
        }
        return false
    }
}
