internal import CLinux
internal import FileSystem
internal import LinuxSystem
internal import Synchronization

/// Makes all workers wait for requests, or a single one while only one program sends requests. Any thread.
///
/// If several workers wait at /dev/fuse, the kernel wakes another one for each request. A program that waits for each
/// reply gains nothing from this, and pays for a wake on another core. So a single worker serves it and the others
/// rest, until more programs send requests or a request takes long. `CoreAssignment` decides.
final class WorkerScheduler: Sendable {
    private struct State {
        var assignment = CoreAssignment()
        var resting: [Semaphore] = []
        /// The requests received and answered by single workers.
        var began: UInt64 = 0
        var ended: UInt64 = 0
        var isWatching = false
        var isDismissed = false
    }

    /// Intervals, in nanoseconds, between checks for a blocked single worker. Each check wakes an idle core. On busy
    /// cores it wakes none, and finds a worker that waits for a core sooner.
    private static let watchInterval: Int64 = 4_000_000
    private static let busyWatchInterval: Int64 = 1_000_000
    /// The number of checks without a new request after which the checks stop until one comes.
    private static let quietChecks = 2
    /// The number of checks between two samples of the load.
    private static let checksOfLoad = 8

    private let state = Mutex(State())
    /// The single worker in `state`, for the others to see without its lock. 0 if all workers serve.
    private let single = Atomic<UInt>(0)
    private let watchWake = Semaphore()
    /// Sampled by `watch`.
    private let mayPoll = Atomic<Bool>(true)
    /// The number of times that a worker has become the single one.
    let followed = Atomic<UInt64>(0)

    /// Returns the number of the worker with this semaphore.
    private static func number(_ wake: Semaphore) -> UInt {
        UInt(bitPattern: Unmanaged.passUnretained(wake).toOpaque())
    }

    /// Returns true if the worker with this semaphore is the single one.
    func isSingle(_ wake: Semaphore) -> Bool { single.load(ordering: .relaxed) == Self.number(wake) }

    /// Changes the state, and wakes the resting workers if all workers serve from now on.
    private func change<Result>(_ body: (inout State) -> Result) -> Result {
        let (result, woken) = state.withLock { state in
            let result = body(&state)
            let worker = state.assignment.alone?.worker ?? 0
            if single.load(ordering: .relaxed) != worker { single.store(worker, ordering: .relaxed) }
            if worker != 0 || state.resting.isEmpty { return (result, [] as [Semaphore]) }
            defer { state.resting = [] }
            return (result, state.resting)
        }
        for wake in woken { wake.post() }
        return result
    }

    /// Makes all workers serve again.
    func endSingle() { change { $0.assignment.endAlone() } }

    /// Makes all workers serve from now on, and ends `watch`.
    func dismiss() {
        change { state in
            state.isDismissed = true
            state.assignment.endAlone()
        }
        watchWake.post()
    }

    /// Rests while another worker is the single one, until that ends or a signal comes. Returns false if there was no
    /// need to rest.
    func restIfNotNeeded(_ wake: Semaphore) -> Bool {
        if single.load(ordering: .relaxed) == 0 || isSingle(wake) { return false }
        let rests = state.withLock { state in
            guard let alone = state.assignment.alone, alone.worker != Self.number(wake) else { return false }
            state.resting.append(wake)
            return true
        }
        guard rests else { return false }
        wake.wait()
        state.withLock { $0.resting.removeAll { $0 === wake } }
        return true
    }

    /// Counts a request received by a worker.
    /// - Parameters:
    ///   - client: the thread that waits for the reply, from `linux_fuse_thread`.
    ///   - isReadAhead: true if the kernel may send the next one without waiting for the reply.
    ///   - time: the current time, in nanoseconds of CLOCK_MONOTONIC.
    /// - Returns: the assignment of the single worker, if it is this one.
    func received(by wake: Semaphore, from client: UInt32, isReadAhead: Bool, at time: Int) -> CoreAssignment.Alone? {
        let mayPoll = mayPoll.load(ordering: .relaxed)
        let (alone, startsWatch) = state.withLock { state -> (CoreAssignment.Alone?, Bool) in
            if client != 0 {
                state.assignment.received(from: client, isReadAhead: isReadAhead, at: time, mayPoll: mayPoll)
            }
            guard let alone = state.assignment.alone, alone.worker == Self.number(wake) else { return (nil, false) }
            state.began += 1
            defer { state.isWatching = true }
            return (alone, !state.isWatching)
        }
        if startsWatch { watchWake.post() }
        return alone
    }

    /// Counts a worker's answer. Returns true if the worker has now become the single one.
    /// - Parameter duration: of the request, in nanoseconds. Nil if the worker slept for most of it.
    func served(by wake: Semaphore, duration: Int?, as role: WorkerSchedule.Role) -> Bool {
        let own = Self.number(wake)
        let hasBegun = change { state in
            if role != .oneOfMany { state.ended += 1 }
            if role == .parted, state.assignment.alone?.worker == own { state.assignment.endAlone() }
            if role == .parted || state.isDismissed { return false }
            return state.assignment.served(by: own, duration: duration)
        }
        if hasBegun { followed.count() }
        return hasBegun
    }

    /// Makes all workers serve again if the single one is blocked, for example on a disk that does not answer, while a
    /// request waits, or while none has come for a while. Sleeps without a timer while there are no requests. Runs on a
    /// thread of its own, until `dismiss`.
    /// - Parameter isRequestThere: must not wait.
    func watch(_ permission: PollingPermission = PollingPermission(), _ isRequestThere: () -> Bool) {
        var permission = permission
        var seen: UInt64 = 0
        var (quiet, checks) = (0, 0)
        while true {
            let (isDismissed, isWatching) = state.withLock { ($0.isDismissed, $0.isWatching) }
            if isDismissed { return }
            if !isWatching {
                watchWake.wait()
                quiet = 0
                continue
            }
            _ = watchWake.wait(nanoseconds: permission.isBusy ? Self.busyWatchInterval : Self.watchInterval)
            if checks % Self.checksOfLoad == 0 { mayPoll.store(permission.sample(), ordering: .relaxed) }
            checks += 1
            let now = state.withLock { $0.began }
            if now == seen, quiet > 0, isRequestThere() { endSingle() }
            quiet = now == seen ? quiet + 1 : 0
            seen = now
            if quiet >= Self.quietChecks { stopChecks(since: now) }
        }
    }

    /// Stops the checks, unless a request came just now.
    private func stopChecks(since seen: UInt64) {
        change { state in
            guard state.began == seen else { return }
            state.isWatching = false
            // The checks would not find the next request waiting for a worker that is blocked now.
            if state.ended != seen { state.assignment.endAlone() }
        }
    }
}

/// One worker's side of the scheduler. Only its worker's thread uses it. Times in nanoseconds of CLOCK_MONOTONIC.
struct WorkerSchedule {
    /// The longest time for which the worker polls, if the last request also came within this time.
    static let longestPoll = 50_000

    /// How the worker serves the current request.
    enum Role {
        case oneOfMany, single
        /// The single worker's program was found on another core.
        case parted
    }

    private let scheduler: WorkerScheduler
    private let wake = Semaphore()
    private var clientCore = ClientCore()
    /// The client's thread, from `linux_fuse_thread`.
    private var client: UInt32 = 0
    private(set) var role = Role.oneOfMany
    /// True if the worker should poll for the next request.
    private(set) var polls = false
    /// True if the current request is an fsync(2), which takes as long as the disk.
    private var synchronizes = false
    private var started = 0
    private var finished = 0

    init(_ scheduler: WorkerScheduler) { self.scheduler = scheduler }

    /// Calls `WorkerScheduler.restIfNotNeeded` with this worker.
    func restIfNotNeeded() -> Bool { scheduler.restIfNotNeeded(wake) }

    /// Counts a request received by the worker, and moves the worker to its program's core if that is due.
    /// - Parameters:
    ///   - request: the request, as sent by the kernel.
    ///   - time: the current time.
    mutating func began(_ request: UnsafeRawBufferPointer, at time: Int) {
        let (start, size) = (request.baseAddress, request.count)
        client = linux_fuse_thread(start, size)
        synchronizes = linux_fuse_synchronizes(start, size) != 0
        started = time
        let isReadAhead = linux_fuse_reads_ahead(start, size) != 0
        let alone = scheduler.received(by: wake, from: client, isReadAhead: isReadAhead, at: time)
        guard let alone else {
            (role, polls) = (.oneOfMany, false)
            return clientCore.leave()
        }
        role = .single
        guard client == alone.client else { return }
        let waited = started - finished
        switch alone.placement {
        case .clientCore:
            polls = false
            if !clientCore.received(from: client, waited: waited) { role = .parted }
        case .polling:
            polls = waited <= Self.longestPoll
            clientCore.leave()
        }
    }

    /// Waits a little for the next request, without sleeping, if this saves time.
    /// - Parameter isRequestThere: must not wait.
    func poll(_ isRequestThere: () -> Bool) {
        guard polls else { return }
        let end = finished + Self.longestPoll
        while !isRequestThere(), monotonicNanoseconds() < end {}
    }

    /// Counts the worker's answer. Returns true if the worker has now become the single one.
    /// - Parameter time: the current time.
    mutating func ended(at time: Int) -> Bool {
        finished = time
        let duration = synchronizes ? nil : finished - started
        guard scheduler.served(by: wake, duration: duration, as: role) else { return false }
        // The core may be another program's.
        clientCore.leave()
        return true
    }
}
