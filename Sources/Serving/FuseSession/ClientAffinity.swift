internal import CLinux

/// Finds out whether a worker's requests come from a single thread, and puts the worker where that thread is served
/// soonest. Only the worker's thread uses it. Times in nanoseconds.
///
/// A program waits for its reply, and its worker for the next request, so the two never run at once. On one core the
/// kernel switches between them. On two it must wake an idle core each time. (Measured in a virtual machine, random
/// reads of 4 KiB: 14 µs each on one core, 36 to 75 µs on two.)
///
/// But the kernel may move the program, at each reply, to the core that the worker has left or will leave. Then the two
/// change places for ever, and each request pays for two wakes. So the scheduler's `PlacementTrial` measures what is best.
struct ClientAffinity {
    enum Finding {
        case nothing
        /// One thread sends short requests. A single worker serves it best.
        case oneClient
        /// Several threads send requests, or requests take long and are better served in parallel, or the worker and the
        /// program keep moving to different cores.
        case severalClients
    }

    /// Number of requests that one finding is made from.
    private static let window = 32
    /// Number of requests in a window that may come from other threads.
    private static let toleratedOthers = 4
    /// If the worker moves more often in a window, the scheduler makes the two change cores: it wakes the program on the
    /// idle core that the worker has left. Starting anew is then better (measured: otherwise less than half of the random
    /// reads), because the other workers, which the kernel wakes in vain, keep that core from being idle.
    private static let maximumMoves = 1
    /// Requests that take longer are better served in parallel.
    private static let longestCost = 80_000
    /// A program on the same core sends its next request sooner than this, if it does nothing in between.
    private static let shortWait = 20_000
    /// Number of consecutive longer waits before the client's core is looked up.
    private static let initialLongWaitLimit = 2
    private static let maximumLongWaitLimit = 512
    /// The worker polls for this long, if the last request came as soon.
    static let longestPoll = 50_000

    private var client: UInt32 = 0
    private var seen = 0
    private var others = 0
    private var moves = 0
    /// Moving average of a request's duration.
    private var cost = 0
    /// The core that the worker is bound to.
    private var core: Int32?
    private var lastWait = 0
    /// The placement that the scheduler's trial has chosen.
    var placement = PlacementTrial.Placement.clientCore
    private var longWaits = 0
    private(set) var longWaitLimit = initialLongWaitLimit

    /// Notes a request that was served.
    /// - Parameters:
    ///   - thread: its sender. 0 if no thread waits for the reply, `linux_fuse_unknown_thread` if it is unknown.
    ///   - duration: nil if the worker slept for most of it, as in fsync(2): no other worker would be faster.
    ///   - isSingle: true if the other workers rest.
    mutating func served(_ thread: UInt32, duration: Int?, isSingle: Bool) -> Finding {
        if let duration { cost += (duration - cost) / 16 }
        if thread == 0 { return .nothing }
        if isSingle {
            if thread != client { others += 1 }
        } else if thread != client || thread == linux_fuse_unknown_thread || cost > Self.longestCost {
            client = thread
            seen = 0
            return .nothing
        }
        seen += 1
        guard seen >= Self.window else { return .nothing }
        defer { (seen, others, moves) = (0, 0, 0) }
        return others > Self.toleratedOthers || cost > Self.longestCost || moves > Self.maximumMoves
            ? .severalClients : .oneClient
    }

    /// True if the worker should poll for the next request.
    var polls: Bool { placement == .polling && lastWait <= Self.longestPoll }

    /// Notes a request that the single worker has received. Looks up the program's core and follows it, if the worker is to
    /// be there, for the first request and if requests come late. Only now, while the program waits. If it were running,
    /// the kernel would move it to the core that the worker leaves.
    /// - Parameters:
    ///   - thread: the sender.
    ///   - waited: time since the last reply.
    mutating func received(from thread: UInt32, waited: Int) {
        guard thread == client else { return }
        lastWait = waited
        guard placement == .clientCore else { return leave() }
        if waited <= Self.shortWait, core != nil {
            longWaits = 0
            longWaitLimit = Self.initialLongWaitLimit
            return
        }
        longWaits += 1
        guard longWaits >= longWaitLimit else { return }
        longWaits = 0
        let found = linux_core_of(Int32(bitPattern: client))
        if found != core, linux_stay_on_core(found) == 0 {
            if core != nil { moves += 1 }
            core = found
        } else {
            // The program itself is slow, or its core is unknown (hidepid, proc(5)) or closed to us (taskset(1)).
            longWaitLimit = min(longWaitLimit * 2, Self.maximumLongWaitLimit)
        }
    }

    /// Lets the worker run on any core again.
    mutating func leave() {
        if core == nil { return }
        core = nil
        // It is looked up soon when the worker is to be there again, also if that was in vain before.
        (longWaits, longWaitLimit) = (0, Self.initialLongWaitLimit)
        linux_leave_core()
    }
}
