/// Finds the placement in which a worker serves its program soonest: tries each for some requests and compares the
/// times between them. Times in nanoseconds.
///
/// The kernel shows nothing that foretells the result. It depends on the cores' caches, on a virtual machine's cost of
/// waking a halted core, on other load, and on the core that the kernel's scheduler chooses for a woken program
/// (select_idle_sibling in kernel/sched/fair.c).
struct PlacementTrial {
    enum Placement {
        /// The worker sleeps on the program's core, where the kernel switches between the two.
        case clientCore
        /// The worker waits on any core without sleeping, which takes processor time.
        case polling
    }

    /// The number of requests for one measurement.
    static let window = 128
    /// The number of requests before a measurement, in which the worker and the program get to their cores.
    static let settling = 16
    /// The number of windows after which the worse placement is tried again. At three times the cost it adds 2 %.
    static let interval = 128
    /// The longest measured interval. Longer ones depend on the program, or on a moment, more than on the placement.
    private static let longestInterval = 100_000

    private(set) var placement = Placement.clientCore
    /// The moving averages of the time between requests. Nil if not tried yet.
    private var onClientCore: Int?
    private var whilePolling: Int?
    private var seen = -settling
    private var sum = 0
    private var windows = 0
    /// The sender and time of the last request.
    private var last: (thread: UInt32, time: Int) = (0, 0)

    /// Counts a request, with the time at which it was received.
    /// - Parameter mayPoll: false if the worker must not poll now. The measurements wait until it may.
    mutating func received(from thread: UInt32, at time: Int, mayPoll: Bool = true) {
        defer { last = (thread, time) }
        guard mayPoll else {
            (placement, seen, sum) = (.clientCore, -Self.settling, 0)
            return
        }
        guard thread == last.thread else { return }
        seen += 1
        guard seen > 0 else { return }
        sum += min(time - last.time, Self.longestInterval)
        guard seen == Self.window else { return }
        let mean = sum / Self.window
        switch placement {
        case .clientCore: onClientCore = onClientCore.map { ($0 + mean) / 2 } ?? mean
        case .polling: whilePolling = whilePolling.map { ($0 + mean) / 2 } ?? mean
        }
        windows += 1
        // Polling takes processor time, so it must be clearly better.
        var polls = (whilePolling ?? 0) * 5 < (onClientCore ?? 0) * 4
        if windows % Self.interval == 0 { polls.toggle() }
        let next = polls ? Placement.polling : .clientCore
        (seen, sum) = (next == placement ? 0 : -Self.settling, 0)
        placement = next
    }
}
