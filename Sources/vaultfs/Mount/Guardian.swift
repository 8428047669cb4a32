internal import CLinux
internal import Glibc

/// A small process beside the daemon that ends the FUSE connection where the daemon, killed, cannot die: a thread of it may
/// be waiting in the kernel for pages that nobody writes back any more, and would keep the mount, and all who use it,
/// waiting too. It needs fusectl (mounted by systemd at /sys/fs/fuse/connections), or root. Any thread.
struct Guardian: @unchecked Sendable {
    // @unchecked: the pointer is to shared memory with one atomic number, which stays mapped.
    private let guardian: OpaquePointer

    /// Nil where there can be none. While the process has one thread, which is to outlive all others.
    static func start() -> Guardian? {
        guard CommandLine.argc > 0, let first = CommandLine.unsafeArgv[0],
            let last = CommandLine.unsafeArgv[Int(CommandLine.argc) - 1]
        else { return nil }
        // They lie one behind the other (execve(2)).
        let size = last + strlen(last) + 1 - first
        guard size > 0, let guardian = linux_start_guardian(first, size) else { return nil }
        return Guardian(guardian: guardian)
    }

    /// - Parameter device: of the mount, whose minor number is the connection's in fusectl.
    func watch(over device: dev_t) {
        linux_guard_connection(guardian, UInt32(truncatingIfNeeded: device & 0xFF | (device >> 12) & 0xFFF00))
    }

    /// The connection has ended in good order.
    func rest() {
        linux_guard_connection(guardian, 0)
    }
}
