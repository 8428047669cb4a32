internal import CLinux

/// Finds out if a worker's requests come from a single thread, and moves the worker to the core on which it serves this
/// thread soonest. Only the worker's thread uses it. Times in nanoseconds.
///
/// A program waits for its reply, and its worker for the next request, so the two never run at once. On one core the
/// kernel switches between them. On two it must wake an idle core each time. (Measured in a virtual machine, random
/// reads of 4 KiB: 14 µs each on one core, 36 to 75 µs on two.)
///
/// The kernel sometimes moves the program to another core. If the worker followed it, the kernel would move it again at
/// each reply, to the core just left by the worker, and each request would pay for two wakes (trace of
/// sched_migrate_task). So all workers take part again until the program is alone once more. The scheduler's
/// `PlacementTrial` finds out if the placement helps at all.
struct ClientAffinity {
    enum Finding {
        case nothing
        /// Found beside other workers: one thread sends short requests, so a single worker serves it best.
        case oneClient
        /// Found by a single worker: several threads send requests, or requests take long and are better served in
        /// parallel, or the program has moved to another core.
        case severalClients
    }

    /// The number of requests for one finding.
    private static let window = 32
    /// The number of tolerated requests from other threads in a window.
    private static let toleratedOthers = 4
    /// The longest average duration at which a single worker is best. Slower requests are better served in parallel.
    private static let longestCost = 80_000
    /// The longest wait for a program on the same core that does nothing between its requests.
    private static let shortWait = 20_000
    /// The number of consecutive longer waits before the client's core is looked up.
    private static let initialLongWaitLimit = 2
    private static let maximumLongWaitLimit = 512
    /// The number of requests between two looks, because a look takes as long as a third of a request, and on a busy
    /// machine every second request may come late.
    private static let pause = 16
    /// The time for which the worker polls, if the last request also came within this time.
    static let longestPoll = 50_000

    private var client: UInt32 = 0
    private var seen = 0
    private var others = 0
    /// The moving average of a request's duration.
    private var cost = 0
    /// The core to which the worker is bound.
    private var core: Int32?
    /// True if the program was found on another core.
    private var isParted = false
    private var lastWait = 0
    /// The placement chosen by the scheduler's trial.
    var placement = PlacementTrial.Placement.clientCore
    /// Negative during a pause.
    private var longWaits = 0
    private(set) var longWaitLimit = initialLongWaitLimit

    /// Counts a served request.
    /// - Parameters:
    /// - thread: the sender. 0 if no thread waits for the reply, `linux_fuse_unknown_thread` if it is unknown.
    /// - duration: nil if the worker slept for most of it, as in fsync(2), because other workers would be no faster.
    /// - run: the number of requests from this sender, to any worker, since another thread sent one.
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

    /// Counts a request received by the single worker. If requests come late, looks up the program's core, and the
    /// first time moves there if the placement says so. It moves now, while the program waits, because the kernel would
    /// move a running program to the core left by the worker.
    /// - Parameters:
    ///   - thread: the sender.
    /// - waited: the time since the last reply.
    mutating func received(from thread: UInt32, waited: Int) {
        guard thread == client else { return }
        lastWait = waited
        guard placement == .clientCore else { return leave() }
        if waited <= Self.shortWait, core != nil {
            longWaits = min(longWaits + 1, 0)
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
            longWaits = -Self.pause
            longWaitLimit = min(longWaitLimit * 2, Self.maximumLongWaitLimit)
        }
    }

    /// Lets the worker run on any core again.
    mutating func leave() {
        if core == nil { return }
        core = nil
        // Start over, so that the core is looked up soon the next time, even if that was in vain before.
        (longWaits, longWaitLimit) = (0, Self.initialLongWaitLimit)
        linux_use_all_cores(0)
    }
}
