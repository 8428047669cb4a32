internal import CLinux
internal import Glibc
internal import SystemPackage

/// Tells whether the machine has a core with nothing to run. Any thread.
package final class IdleCores: Sendable {
    /// Nil without procfs.
    private let load = try? Descriptor(path: "/proc/loadavg", flags: O_RDONLY)
    private let count: Int

    /// - Parameter count: the number of cores. 0: none is ever idle.
    package init(of count: Int = sysconf(Int32(_SC_NPROCESSORS_ONLN))) { self.count = count }

    /// True if fewer threads run or are ready to run than there are cores (proc_loadavg(5)), or if that is unknown. Takes
    /// 1 µs.
    package var isThereOne: Bool {
        guard let load else { return true }
        return Int(linux_runnable_threads(load.fd)) < count
    }
}
