internal import BackingStore
internal import Synchronization

/// Which worker waits for the next request, and which ones rest. Any thread.
///
/// One waits at /dev/fuse, and no more: of several that sleep there the kernel wakes one for each request, even while
/// another is about to take it. It serves what it takes itself, without waking anybody, since that would cost more than
/// most requests. Others are called where requests queue up, and when all that do not rest are busy for long (`watch`).
final class WorkerCrew: @unchecked Sendable {
    // @unchecked: `polling` is used by the one that waits alone.

    /// How often is looked whether all workers are stuck: while requests come, nanoseconds.
    private static let watchInterval: Int64 = 1_000_000
    /// Looks without a request after which no more are made until one comes.
    private static let quietLooks = 4

    private let hasWaiter = Atomic<Bool>(false)
    private var polling = RequestPolling()
    private let resting = Mutex<[Semaphore]>([])
    private let isDismissed = Atomic<Bool>(false)
    private let taken = Atomic<UInt64>(0)
    private let isWatching = Atomic<Bool>(false)
    private let watchCall = Semaphore()

    /// Runs `body` as the one that waits; nil where another one does.
    func waiting<Result>(_ body: (inout RequestPolling) -> Result) -> Result? {
        guard hasWaiter.compareExchange(expected: false, desired: true, ordering: .acquiringAndReleasing).exchanged
        else { return nil }
        defer { hasWaiter.store(false, ordering: .releasing) }
        return body(&polling)
    }

    /// Rests until it is called, or a signal comes.
    /// - Parameter bell: the caller's own.
    func rest(_ bell: Semaphore) {
        resting.withLock { $0.append(bell) }
        if isDismissed.load(ordering: .sequentiallyConsistent) { return }
        bell.wait()
        // Where a signal came, or a call that was late for the rest before.
        resting.withLock { resting in resting.removeAll { $0 === bell } }
    }

    /// A request was taken.
    func took() {
        taken.add(1, ordering: .sequentiallyConsistent)
        if !isWatching.load(ordering: .sequentiallyConsistent),
            !isWatching.exchange(true, ordering: .sequentiallyConsistent)
        { watchCall.post() }
    }

    /// Before a request that takes long: somebody is to wait for the next one.
    func makeSureOfWaiter() {
        if !hasWaiter.load(ordering: .acquiring) { call() }
    }

    /// Calls one that rests: who began to last, whose caches are warm.
    func call() {
        resting.withLock { $0.popLast() }?.post()
    }

    /// Nobody rests from now on; ends `watch`.
    func dismiss() {
        isDismissed.store(true, ordering: .sequentiallyConsistent)
        for bell in resting.withLock({ $0 }) { bell.post() }
        watchCall.post()
    }

    /// A thread's body, until `dismiss`: calls a worker when those that do not rest are stuck in their requests, as on a
    /// disk that does not answer. Without requests it sleeps without a timer.
    func watch() {
        var seen: UInt64 = 0
        var quiet = 0
        while !isDismissed.load(ordering: .sequentiallyConsistent) {
            if !isWatching.load(ordering: .sequentiallyConsistent) {
                watchCall.wait()
                quiet = 0
                continue
            }
            _ = watchCall.wait(nanoseconds: Self.watchInterval)
            let now = taken.load(ordering: .sequentiallyConsistent)
            if now != seen {
                (seen, quiet) = (now, 0)
            } else if !hasWaiter.load(ordering: .acquiring) {
                call()
            } else {
                quiet += 1
                if quiet >= Self.quietLooks { rest(since: now) }
            }
        }
    }

    /// Stops looking, unless a request was taken just now.
    private func rest(since seen: UInt64) {
        isWatching.store(false, ordering: .sequentiallyConsistent)
        if taken.load(ordering: .sequentiallyConsistent) != seen {
            isWatching.store(true, ordering: .sequentiallyConsistent)
        }
    }
}
