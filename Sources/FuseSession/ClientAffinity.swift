internal import CLinux

/// What one worker knows of who asks it, and how it stays with a program that is alone in asking. Used by the worker's
/// thread only; times in nanoseconds.
///
/// A program waits for its answer, and its worker for the next request, so the two never run at once: on one core the
/// kernel switches from one to the other, on two it has to wake an idle core each time. (Measured in a virtual machine,
/// random reads of 4 KiB: 14 µs each on the same core, 36 to 75 µs on two.)
struct ClientAffinity {
    enum Finding {
        case nothing
        /// One thread asks, and asks for little at a time: one worker serves it best.
        case soleClient
        /// Others ask too, or for much, which can be made ready while the program goes on; or the two do not meet.
        case severalClients
    }

    /// How many requests a finding is made from.
    private static let window = 32
    /// How many of a window's may be others' with a sole client.
    private static let tolerated = 4
    /// Where the worker moves more often in a window, the scheduler has the two change places: it wakes the program on the
    /// idle core that the worker has left. Then it is better to begin anew (measured: less than half of the random reads else).
    private static let mostMoves = 1
    /// Requests that take longer are better served beside each other.
    private static let longest = 80_000
    /// A program on the same core is back sooner than this, if it does nothing between.
    private static let shortWait = 20_000
    /// After how many longer waits in a row is looked where it runs: at first, and at most.
    private static let initialLongWaitLimit = 2
    private static let maximumLongWaitLimit = 512

    private var client: UInt32 = 0
    private var seen = 0
    private var others = 0
    private var moves = 0
    /// What a request takes, smoothed.
    private var cost = 0
    /// The core stayed on.
    private var core: Int32?
    private var longWaits = 0
    private(set) var longWaitLimit = initialLongWaitLimit

    /// A request was served.
    /// - Parameters:
    ///   - thread: which asked; 0 where nobody waits, `linux_fuse_unknown_thread` where it is not told.
    ///   - taken: what it took.
    ///   - isAlone: whether the other workers rest.
    mutating func served(_ thread: UInt32, taken: Int, isAlone: Bool) -> Finding {
        cost += (taken - cost) / 16
        if thread == 0 { return .nothing }
        if isAlone {
            if thread != client { others += 1 }
        } else if thread != client || thread == linux_fuse_unknown_thread || cost > Self.longest {
            client = thread
            seen = 0
            return .nothing
        }
        seen += 1
        guard seen >= Self.window else { return .nothing }
        defer { (seen, others, moves) = (0, 0, 0) }
        return others > Self.tolerated || cost > Self.longest || moves > Self.mostMoves ? .severalClients : .soleClient
    }

    /// A request was taken by a worker that serves alone: looks where the program runs when that may be another core than
    /// before, since it was long in coming back. Now, while it waits: were it running, the kernel would take it to the
    /// core that the worker leaves.
    /// - Parameters:
    ///   - thread: which asks.
    ///   - waited: how long it was waited for.
    mutating func took(_ thread: UInt32, waited: Int) {
        guard thread == client else { return }
        if waited <= Self.shortWait {
            longWaits = 0
            longWaitLimit = Self.initialLongWaitLimit
            return
        }
        longWaits += 1
        guard longWaits >= longWaitLimit else { return }
        longWaits = 0
        let found = linux_core_of(Int32(bitPattern: client))
        if found != core, linux_stay_on_core(found) == 0 {
            moves += 1
            core = found
        } else {
            // It is slow by itself, or where it runs is not told (hidepid, proc(5)) or closed to us (taskset(1)).
            longWaitLimit = min(longWaitLimit * 2, Self.maximumLongWaitLimit)
        }
    }

    /// Lets the worker run where it may.
    mutating func leave() {
        if core == nil { return }
        core = nil
        linux_leave_core()
    }
}
