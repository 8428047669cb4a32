internal import CLinux

/// Which workers wait for requests, and how the only one waits: a state machine without threads or system calls, fed
/// with each request and its answer. `WorkerScheduler` guards it. Times in nanoseconds.
///
/// | from | to | when | function |
/// |---|---|---|---|
/// | many | alone | one thread has sent 32 requests in a row, and they were short | `served` |
/// | alone | many | 5 of 32 requests are from others, or they are long | `served` |
/// | alone | many | the worker is blocked, its program has changed cores, or the session ends | `endAlone` |
/// | alone, asleep | alone, polling | `PlacementTrial` found it quicker, and nothing forbids it | `received` |
/// | alone, polling | alone, asleep | it is no longer quicker, or `PollingPermission` forbids it | `received` |
///
/// Performance.md has the measurements.
struct CoreAssignment {
    /// A worker, as a number of the scheduler's.
    typealias WorkerNumber = UInt

    /// One worker serves one thread of a program, and the others rest.
    struct Alone {
        let worker: WorkerNumber
        let client: UInt32
        fileprivate(set) var placement: PlacementTrial.Placement
        /// The requests of the current window, and those of them from other threads.
        fileprivate var seen = 0
        fileprivate var others = 0
    }

    enum State {
        case many
        case alone(Alone)
    }

    /// The number of requests after which the state is considered.
    private static let window = 32
    /// The number of tolerated requests from other threads in a window.
    private static let toleratedOthers = 4
    /// The longest average duration at which a single worker is best. Slower requests are better served in parallel.
    private static let longestCost = 80_000
    /// The number of consecutive read-ahead requests that are ignored, because a program that reads one file after the
    /// other waits for most of its requests.
    private static let readAheadLimit = 16

    private(set) var state = State.many
    private var trial = PlacementTrial()
    /// The sender of the last request, and the number of requests since another thread sent one.
    private var sender: UInt32 = 0
    private var run = 0
    private var readAheads = 0
    /// The moving average of a request's duration, of all workers that serve.
    private var cost = 0

    /// The single worker and its client. Nil if all workers serve.
    var alone: Alone? { if case .alone(let alone) = state { alone } else { nil } }

    /// Counts a request for which a thread waits.
    /// - Parameters:
    ///   - thread: the sender, `linux_fuse_unknown_thread` if it is unknown.
    ///   - isReadAhead: true if the kernel may send the next one without waiting for the reply.
    ///   - time: the time at which it was received.
    ///   - mayPoll: false if no worker may poll now.
    mutating func received(from thread: UInt32, isReadAhead: Bool, at time: Int, mayPoll: Bool) {
        readAheads = isReadAhead ? readAheads + 1 : 0
        // After many read-ahead requests the sender counts as unknown, because several workers sooner serve a program
        // whose next request comes before the reply.
        let thread = readAheads > Self.readAheadLimit ? linux_fuse_unknown_thread : thread
        run = thread == sender ? run + 1 : 1
        sender = thread
        // A program whose thread is unknown is never alone, so it needs no placement. While all workers serve, the time
        // counts for the placement that made the program change cores.
        if thread != linux_fuse_unknown_thread { trial.received(from: thread, at: time, mayPoll: mayPoll) }
        guard case .alone(var alone) = state else { return }
        alone.seen += 1
        if thread != alone.client { alone.others += 1 }
        alone.placement = trial.placement
        state = .alone(alone)
    }

    /// Counts an answer, also one for which no thread waits, because it costs time all the same.
    /// - Parameter duration: nil if the worker slept for most of it, as in fsync(2), because other workers would be no
    ///   faster.
    /// - Returns: true if the worker is the only one from now on.
    mutating func served(by worker: WorkerNumber, duration: Int?) -> Bool {
        // A request that another worker received before says nothing about the program that is alone now.
        if let alone, alone.worker != worker { return false }
        if let duration { cost += (duration - cost) / 16 }
        switch state {
        case .many:
            guard run >= Self.window, sender != linux_fuse_unknown_thread, cost <= Self.longestCost else {
                return false
            }
            state = .alone(Alone(worker: worker, client: sender, placement: trial.placement))
            return true
        case .alone(var alone):
            guard alone.seen >= Self.window else { return false }
            let isRight = alone.others <= Self.toleratedOthers && cost <= Self.longestCost
            (alone.seen, alone.others) = (0, 0)
            state = isRight ? .alone(alone) : .many
            return false
        }
    }

    /// Makes all workers serve.
    mutating func endAlone() { state = .many }
}
