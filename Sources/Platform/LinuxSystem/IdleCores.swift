internal import CLinux
internal import Glibc
internal import Synchronization
internal import SystemPackage

/// Finds out if the machine has an idle core. Any thread.
package final class IdleCores: Sendable {
    /// The time for which an answer is used, in nanoseconds.
    private static let age = 20_000_000

    /// Nil without procfs.
    private let load = try? Descriptor(path: "/proc/loadavg", flags: O_RDONLY)
    private let count: Int
    private let answer = Atomic(false)
    /// The time of the last answer.
    private let answered = Atomic(Int.min / 2)

    /// - Parameter count: the number of cores. With 0, none is ever idle.
    package init(of count: Int = sysconf(Int32(_SC_NPROCESSORS_ONLN))) { self.count = count }

    /// True if at most 20 ms ago fewer threads ran or were ready to run than there are cores (proc_loadavg(5)), or if
    /// this is unknown.
    package var isThereOne: Bool {
        guard let load else { return true }
        let now = monotonicNanoseconds()
        if now - answered.load(ordering: .relaxed) >= Self.age {
            answer.store(Int(linux_runnable_threads(load.fd)) < count, ordering: .relaxed)
            answered.store(now, ordering: .relaxed)
        }
        return answer.load(ordering: .relaxed)
    }
}
