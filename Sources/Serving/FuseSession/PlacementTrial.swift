/// Finds out where a worker serves its program soonest: tries each placement for some requests and compares the times
/// between them. Times in nanoseconds.
///
/// Nothing that the kernel shows foretells the result. It depends on the cores' caches, on a virtual machine's cost of waking
/// a halted core, on what else runs, and on how the kernel's scheduler chooses a core for a program that it wakes
/// (select_idle_sibling in kernel/sched/fair.c).
struct PlacementTrial {
    enum Placement {
        /// The worker sleeps on the program's core, where the kernel switches between the two.
        case clientCore
        /// The worker waits on any core, without sleeping, which takes a core's time.
        case polling
    }

    /// Number of requests that one measurement is made from.
    static let window = 128
    /// Number of requests before them, with which the worker and the program get to their cores.
    static let settling = 16
    /// Number of windows after which the worse placement is tried again. At three times the cost it adds 2 %.
    static let interval = 128
    /// Longer intervals say more about the program, or about a moment, than about the placement.
    private static let longestInterval = 100_000

    private(set) var placement = Placement.clientCore
    /// Moving averages of the time between requests. Nil if not tried yet.
    private var onClientCore: Int?
    private var whilePolling: Int?
    private var seen = -settling
    private var sum = 0
    private var windows = 0
    /// Sender and time of the last request.
    private var last: (thread: UInt32, time: Int) = (0, 0)

    /// Notes a request and the time at which it was received.
    mutating func received(from thread: UInt32, at time: Int) {
        defer { last = (thread, time) }
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
        // It takes processor time, so it must be clearly better.
        var polls = (whilePolling ?? 0) * 5 < (onClientCore ?? 0) * 4
        if windows % Self.interval == 0 { polls.toggle() }
        let next = polls ? Placement.polling : .clientCore
        (seen, sum) = (next == placement ? 0 : -Self.settling, 0)
        placement = next
    }
}
