internal import Glibc

/// What the watch asks of the kernel. Tests take some of it away.
struct WatchSystem: Sendable {
    var hasInotify = true
    /// Notes each change of the mount table: proc_pid_mountinfo(5).
    var mountTable = "/proc/self/mountinfo"
    /// poll(2); milliseconds, -1 for no time-out.
    var poll: @Sendable (_ descriptors: inout [pollfd], _ timeout: Int32) -> Int32 = { descriptors, timeout in
        Glibc.poll(&descriptors, nfds_t(descriptors.count), timeout)
    }
}
