internal import CLinux
internal import Glibc

/// A small process beside the daemon. A killed daemon may be unable to die, because one of its threads waits in the
/// kernel for pages that only the daemon could write back, and the mount hangs. The guardian then ends the FUSE
/// connection. It needs fusectl (systemd mounts it at /sys/fs/fuse/connections) or root. Any thread.
struct Guardian: @unchecked Sendable {
    // @unchecked: the pointer leads to shared memory with one atomic number, which stays mapped.
    private let guardian: OpaquePointer

    /// Returns nil on failure. The process must have only one thread, which must outlive all later ones.
    static func start() -> Guardian? {
        guard CommandLine.argc > 0, let first = CommandLine.unsafeArgv[0],
            let last = CommandLine.unsafeArgv[Int(CommandLine.argc) - 1]
        else { return nil }
        // The arguments lie one after the other (execve(2)).
        let size = last + strlen(last) + 1 - first
        guard size > 0, let guardian = linux_start_guardian(first, size) else { return nil }
        return Guardian(guardian: guardian)
    }

    /// Starts watching. Must be called once, while the mount exists.
    /// - Parameter device: the mount's. Its minor number is the connection's in fusectl.
    func watch(over device: dev_t) {
        linux_guard_connection(guardian, UInt32(truncatingIfNeeded: device & 0xFF | (device >> 12) & 0xFFF00))
    }
}
