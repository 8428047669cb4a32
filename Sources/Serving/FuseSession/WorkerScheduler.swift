internal import CLinux
internal import FileSystem
internal import LinuxSystem
internal import Synchronization

/// Chooses which workers wait for requests: all of them, or a single one while only one program sends requests. Any
/// thread.
///
/// If several workers wait at /dev/fuse, the kernel wakes another one for each request. A program that waits for each
/// reply gains nothing from this, and pays for a wake on another core. So a single worker serves it and the others
/// rest, until more programs send requests or a request takes long.
final class WorkerScheduler: Sendable {
    /// Interval, in nanoseconds, between checks for a blocked single worker.
    private static let watchInterval: Int64 = 1_000_000
    /// The number of checks without a new request after which the checks stop until one comes.
    private static let quietChecks = 4
    /// The number of checks between two samples of the load.
    private static let checksOfLoad = 32

    /// The address of the single worker's semaphore. 0 if all workers serve.
    private let single = Atomic<UInt>(0)
    private let resting = Mutex<[Semaphore]>([])
    private let isDismissed = Atomic<Bool>(false)
    /// The requests received and answered by single workers.
    private let began = Atomic<UInt64>(0)
    private let ended = Atomic<UInt64>(0)
    private let isWatching = Atomic<Bool>(false)
    private let watchWake = Semaphore()
    private let arrivals = Mutex(Arrivals())
    /// Sampled by `watch`.
    private let mayPoll = Atomic<Bool>(true)
    /// The number of times that a worker has become the single one.
    let followed = Atomic<UInt64>(0)

    private static func number(_ wake: Semaphore) -> UInt {
        UInt(bitPattern: Unmanaged.passUnretained(wake).toOpaque())
    }

    /// Returns true if the worker with this semaphore is the single one.
    func isSingle(_ wake: Semaphore) -> Bool { single.load(ordering: .sequentiallyConsistent) == Self.number(wake) }

    /// Counts a request.
    /// - Parameter isReadAhead: true if the kernel may send the next one without waiting for the reply.
    /// - Returns: nil if another worker is here now, because several programs then send requests, or if `client` is 0.
    func received(from client: UInt32, isReadAhead: Bool, at time: Int) -> Arrival? {
        if client == 0 { return nil }
        let mayPoll = mayPoll.load(ordering: .relaxed)
        return arrivals.withLockIfAvailable {
            $0.received(from: client, isReadAhead: isReadAhead, at: time, mayPoll: mayPoll)
        }
    }

    /// Makes all other workers rest after their requests. Returns false if there is already a single worker.
    @discardableResult
    func beginSingle(_ wake: Semaphore) -> Bool {
        if isDismissed.load(ordering: .sequentiallyConsistent) { return false }
        let change = single.compareExchange(
            expected: 0, desired: Self.number(wake), ordering: .sequentiallyConsistent)
        if change.exchanged { followed.count() }
        return change.exchanged
    }

    /// Makes all workers serve again.
    func endSingle() {
        single.store(0, ordering: .sequentiallyConsistent)
        let woken = resting.withLock { resting in
            defer { resting = [] }
            return resting
        }
        for wake in woken { wake.post() }
    }

    /// Rests while another worker is the single one, until that ends or a signal comes. Returns false if there was no
    /// need to rest.
    func restIfNotNeeded(_ wake: Semaphore) -> Bool {
        let current = single.load(ordering: .sequentiallyConsistent)
        if current == 0 || current == Self.number(wake) { return false }
        resting.withLock { $0.append(wake) }
        // The other worker may have become an ordinary one just before.
        if single.load(ordering: .sequentiallyConsistent) != 0 { wake.wait() }
        resting.withLock { resting in resting.removeAll { $0 === wake } }
        return true
    }

    /// Counts a request received by the single worker.
    func singleBegan() {
        began.add(1, ordering: .sequentiallyConsistent)
        if !isWatching.load(ordering: .sequentiallyConsistent),
            !isWatching.exchange(true, ordering: .sequentiallyConsistent)
        {
            watchWake.post()
        }
    }

    /// Counts the answer to that request. Its worker may no longer be the single one.
    func singleEnded() { ended.add(1, ordering: .sequentiallyConsistent) }

    /// Makes all workers serve from now on, and ends `watch`.
    func dismiss() {
        isDismissed.store(true, ordering: .sequentiallyConsistent)
        endSingle()
        watchWake.post()
    }

    /// Makes all workers serve again if the single one is blocked, for example on a disk that does not answer, while a
    /// request waits, or while none has come for a while. Sleeps without a timer while there are no requests. Runs on a
    /// thread of its own, until `dismiss`.
    /// - Parameter isRequestThere: must not wait.
    func watch(_ permission: PollingPermission = PollingPermission(), _ isRequestThere: () -> Bool) {
        var permission = permission
        var seen: UInt64 = 0
        var (quiet, checks) = (0, 0)
        while !isDismissed.load(ordering: .sequentiallyConsistent) {
            if !isWatching.load(ordering: .sequentiallyConsistent) {
                watchWake.wait()
                quiet = 0
                continue
            }
            _ = watchWake.wait(nanoseconds: Self.watchInterval)
            if checks % Self.checksOfLoad == 0 { mayPoll.store(permission.sample(), ordering: .relaxed) }
            checks += 1
            let now = began.load(ordering: .sequentiallyConsistent)
            if now == seen, quiet > 0, isRequestThere() { endSingle() }
            quiet = now == seen ? quiet + 1 : 0
            seen = now
            guard quiet >= Self.quietChecks else { continue }
            // The checks stop now, so they would not find the next request waiting.
            if ended.load(ordering: .sequentiallyConsistent) != now { endSingle() }
            stopChecks(since: now)
        }
    }

    /// Stops the checks, unless a request came just now.
    private func stopChecks(since seen: UInt64) {
        isWatching.store(false, ordering: .sequentiallyConsistent)
        if began.load(ordering: .sequentiallyConsistent) != seen {
            isWatching.store(true, ordering: .sequentiallyConsistent)
        }
    }
}

/// A request among those of all workers.
struct Arrival {
    /// The sender. Unknown if the kernel has read ahead for a while, because several workers sooner serve a program
    /// whose next request comes before the reply.
    let client: UInt32
    /// The number of requests from this client since another client sent one.
    let run: Int
    /// The placement of a single worker that waits for the next request.
    let placement: PlacementTrial.Placement
}

/// The requests of all workers, in the order of their arrival.
private struct Arrivals {
    /// The number of consecutive read-ahead requests that are ignored, because a program that reads one file after the
    /// other waits for most of its requests.
    private static let readAheadLimit = 16

    private var trial = PlacementTrial()
    private var client: UInt32 = 0
    private var run = 0
    private var readAheads = 0

    mutating func received(from sender: UInt32, isReadAhead: Bool, at time: Int, mayPoll: Bool) -> Arrival {
        readAheads = isReadAhead ? readAheads + 1 : 0
        let client = readAheads > Self.readAheadLimit ? linux_fuse_unknown_thread : sender
        // A program whose thread is unknown is never alone, so it needs no placement.
        if client != linux_fuse_unknown_thread { trial.received(from: client, at: time, mayPoll: mayPoll) }
        run = client == self.client ? run + 1 : 1
        self.client = client
        return Arrival(client: client, run: run, placement: trial.placement)
    }
}

/// One worker's side of the scheduler. Only its worker's thread uses it.
struct WorkerSchedule {
    private let scheduler: WorkerScheduler
    private let wake = Semaphore()
    private var affinity = ClientAffinity()
    /// True if the worker has received the current request as the single one.
    private(set) var isSingle = false
    /// The number of requests from the client since another one sent one. 0 if unknown.
    private var run = 0
    /// The client's thread, from `linux_fuse_thread` or `Arrival`.
    private var client: UInt32 = 0
    /// True if the current request is an fsync(2), which takes as long as the disk.
    private var synchronizes = false
    /// Times in nanoseconds of CLOCK_MONOTONIC.
    private var started = 0
    private var finished = 0

    init(_ scheduler: WorkerScheduler) { self.scheduler = scheduler }

    /// Calls `WorkerScheduler.restIfNotNeeded` with this worker.
    func restIfNotNeeded() -> Bool { scheduler.restIfNotNeeded(wake) }

    /// Counts a request received by the worker.
    /// - Parameters:
    /// - request: the request, as sent by the kernel.
    /// - time: the current time, in nanoseconds of CLOCK_MONOTONIC.
    mutating func began(_ request: UnsafeRawBufferPointer, at time: Int) {
        let (start, size) = (request.baseAddress, request.count)
        client = linux_fuse_thread(start, size)
        synchronizes = linux_fuse_synchronizes(start, size) != 0
        isSingle = scheduler.isSingle(wake)
        started = time
        let isReadAhead = linux_fuse_reads_ahead(start, size) != 0
        let arrival = scheduler.received(from: client, isReadAhead: isReadAhead, at: started)
        run = arrival?.run ?? 0
        if let arrival { (client, affinity.placement) = (arrival.client, arrival.placement) }
        if isSingle {
            scheduler.singleBegan()
            affinity.received(from: client, waited: started - finished)
        } else {
            affinity.leave()
        }
    }

    /// Waits a little for the next request, without sleeping, if this saves time.
    /// - Parameter isRequestThere: must not wait.
    func poll(_ isRequestThere: () -> Bool) {
        guard isSingle, affinity.polls else { return }
        let end = finished + ClientAffinity.longestPoll
        while !isRequestThere(), monotonicNanoseconds() < end {}
    }

    /// Counts the worker's answer. Returns true if the worker has now become the single one.
    /// - Parameter time: the current time, in nanoseconds of CLOCK_MONOTONIC.
    mutating func ended(at time: Int) -> Bool {
        if isSingle { scheduler.singleEnded() }
        finished = time
        let duration = synchronizes ? nil : finished - started
        switch affinity.served(client, duration: duration, run: run, isSingle: isSingle) {
        case .nothing: return false
        case .oneClient: return scheduler.beginSingle(wake)
        case .severalClients:
            scheduler.endSingle()
            return false
        }
    }
}
