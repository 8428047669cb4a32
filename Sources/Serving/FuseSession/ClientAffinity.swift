internal import CLinux

/// Finds out whether a worker's requests come from a single thread, and puts the worker where that thread is served
/// soonest. Only the worker's thread uses it. Times in nanoseconds.
///
/// A program waits for its reply, and its worker for the next request, so the two never run at once. On one core the
/// kernel switches between them. On two it must wake an idle core each time. (Measured in a virtual machine, random
/// reads of 4 KiB: 14 µs each on one core, 36 to 75 µs on two.)
///
/// The kernel sometimes moves the program to another core. If the worker followed it, the kernel would move it again at
/// each reply, to the core that the worker has just left, and each request would pay for two wakes (trace of
/// sched_migrate_task). So all workers take part again until a program is alone once more. Where that does not help, the
/// scheduler's `PlacementTrial` finds out.
struct ClientAffinity {
    enum Finding {
        case nothing
        /// Found beside other workers: one thread sends short requests. A single worker serves it best.
        case oneClient
        /// Found by a single worker: several threads send requests, or requests take long and are better served in
        /// parallel, or the program has moved to another core.
        case severalClients
    }

    /// Number of requests that one finding is made from.
    private static let window = 32
    /// Number of requests in a window that may come from other threads.
    private static let toleratedOthers = 4
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
    /// Moving average of a request's duration.
    private var cost = 0
    /// The core that the worker is bound to.
    private var core: Int32?
    /// True if the program was found on another core.
    private var isParted = false
    private var lastWait = 0
    /// The placement that the scheduler's trial has chosen.
    var placement = PlacementTrial.Placement.clientCore
    private var longWaits = 0
    private(set) var longWaitLimit = initialLongWaitLimit

    /// Notes a request that was served.
    /// - Parameters:
    ///   - thread: its sender. 0 if no thread waits for the reply, `linux_fuse_unknown_thread` if it is unknown.
    ///   - duration: nil if the worker slept for most of it, as in fsync(2): no other worker would be faster.
    ///   - run: number of requests that the sender has sent since another thread sent one, to any worker.
    ///   - isSingle: true if the other workers rest.
    mutating func served(_ thread: UInt32, duration: Int?, run: Int, isSingle: Bool) -> Finding {
        if let duration { cost += (duration - cost) / 16 }
        if thread == 0 { return .nothing }
        guard isSingle else {
            client = thread
            (seen, others, isParted) = (0, 0, false)
            let isAlone = run >= Self.window && thread != linux_fuse_unknown_thread && cost <= Self.longestCost
            return isAlone ? .oneClient : .nothing
        }
        if thread != client { others += 1 }
        seen += 1
        guard seen >= Self.window || isParted else { return .nothing }
        defer { (seen, others, isParted) = (0, 0, false) }
        return others > Self.toleratedOthers || cost > Self.longestCost || isParted ? .severalClients : .nothing
    }

    /// True if the worker should poll for the next request.
    var polls: Bool { placement == .polling && lastWait <= Self.longestPoll }

    /// Notes a request that the single worker has received. If requests come late, looks up the program's core, and the
    /// first time moves there if the worker is to be there. Only now, while the program waits: if it were running, the
    /// kernel would move it to the core that the worker leaves.
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
        if let core, found >= 0, found != core {
            isParted = true
        } else if core == nil, linux_stay_on_core(found) == 0 {
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
        linux_use_all_cores(0)
    }
}
