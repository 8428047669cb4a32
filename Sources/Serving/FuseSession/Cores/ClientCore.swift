internal import CLinux

/// Keeps the single worker on its program's core. Only the worker's thread uses it. Times in nanoseconds.
///
/// A program waits for its reply, and its worker for the next request, so the two never run at once. On one core the
/// kernel switches between them. On two it must wake an idle core each time. (Measured in a virtual machine, random
/// reads of 4 KiB: 14 µs each on one core, 36 to 75 µs on two.)
///
/// The kernel sometimes moves the program to another core. If the worker followed it, the kernel would move it again at
/// each reply, to the core just left by the worker, and each request would pay for two wakes (trace of
/// sched_migrate_task). So all workers take part again until the program is alone once more.
struct ClientCore {
    /// The longest wait for a program on the same core that does nothing between its requests.
    private static let shortWait = 20_000
    /// The number of consecutive longer waits before the program's core is looked up.
    private static let initialLongWaitLimit = 2
    private static let maximumLongWaitLimit = 512
    /// The number of requests between two looks, because a look takes as long as a third of a request, and on a busy
    /// machine every second request may come late.
    private static let pause = 16

    /// The core to which the worker is bound.
    private var core: Int32?
    /// Negative during a pause.
    private var longWaits = 0
    private(set) var longWaitLimit = initialLongWaitLimit

    /// Counts a request of the program. If requests come late, looks up the program's core, and the first time moves
    /// there. It moves now, while the program waits, because the kernel would move a running program to the core left
    /// by the worker.
    /// - Parameter waited: the time since the last reply.
    /// - Returns: false if the program was found on another core than the worker.
    mutating func received(from thread: UInt32, waited: Int) -> Bool {
        if waited <= Self.shortWait, core != nil {
            longWaits = min(longWaits + 1, 0)
            longWaitLimit = Self.initialLongWaitLimit
            return true
        }
        longWaits += 1
        guard longWaits >= longWaitLimit else { return true }
        longWaits = 0
        let found = linux_core_of(Int32(bitPattern: thread))
        if let core, found >= 0, found != core { return false }
        if core == nil, linux_stay_on_core(found) == 0 {
            core = found
        } else {
            // The program itself is slow, or its core is unknown (hidepid, proc(5)) or closed to us (taskset(1)).
            longWaits = -Self.pause
            longWaitLimit = min(longWaitLimit * 2, Self.maximumLongWaitLimit)
        }
        return true
    }

    /// Lets the worker run on any core again.
    mutating func leave() {
        if core == nil { return }
        // Start over, so that the core is looked up soon the next time.
        self = ClientCore()
        linux_use_all_cores(0)
    }
}
