internal import FileSystem
internal import LinuxSystem
internal import Synchronization

/// Which workers wait for requests: all, or, while one program alone asks, one. Any thread.
///
/// Of several that wait at /dev/fuse the kernel wakes another one for each request. Where there is only one program, which
/// waits for its answer, that brings nothing but a wake on another core. So one worker serves it alone and the others
/// rest, until more programs ask, or it takes long.
final class WorkerScheduler: Sendable {
    /// How often is looked whether the one is stuck in a request while others wait: nanoseconds.
    private static let watchInterval: Int64 = 1_000_000
    /// Looks without a request after which no more are made until one comes.
    private static let quietLooks = 4

    /// The bell of the worker that serves alone.
    private let sole = Atomic<UInt>(0)
    private let resting = Mutex<[Semaphore]>([])
    private let isDismissed = Atomic<Bool>(false)
    private let taken = Atomic<UInt64>(0)
    private let answered = Atomic<UInt64>(0)
    private let isWatching = Atomic<Bool>(false)
    private let watchCall = Semaphore()
    /// How often one has begun to serve alone.
    let followed = Atomic<UInt64>(0)

    private static func number(_ wake: Semaphore) -> UInt {
        UInt(bitPattern: Unmanaged.passUnretained(wake).toOpaque())
    }

    /// Whether the worker with this bell serves alone.
    func isSole(_ wake: Semaphore) -> Bool {
        sole.load(ordering: .sequentiallyConsistent) == Self.number(wake)
    }

    /// Has all others rest, as they come back. Not if one serves alone already.
    func beginSole(_ wake: Semaphore) {
        if isDismissed.load(ordering: .sequentiallyConsistent) { return }
        if sole.compareExchange(expected: 0, desired: Self.number(wake), ordering: .sequentiallyConsistent).exchanged {
            followed.count()
        }
    }

    /// Has all work again.
    func endSole() {
        sole.store(0, ordering: .sequentiallyConsistent)
        let waiting = resting.withLock { resting in
            defer { resting = [] }
            return resting
        }
        for wake in waiting { wake.post() }
    }

    /// Rests while another worker serves alone: until there is none, or a signal comes. False where none does.
    func restIfNotNeeded(_ wake: Semaphore) -> Bool {
        let one = sole.load(ordering: .sequentiallyConsistent)
        if one == 0 || one == Self.number(wake) { return false }
        resting.withLock { $0.append(wake) }
        // It may have ended just before.
        if sole.load(ordering: .sequentiallyConsistent) != 0 { wake.wait() }
        resting.withLock { resting in resting.removeAll { $0 === wake } }
        return true
    }

    /// The worker that serves alone has taken a request.
    func soleTook() {
        taken.add(1, ordering: .sequentiallyConsistent)
        if !isWatching.load(ordering: .sequentiallyConsistent),
            !isWatching.exchange(true, ordering: .sequentiallyConsistent)
        {
            watchCall.post()
        }
    }

    /// It has answered that request, though it may not be the one any more.
    func soleAnswered() {
        answered.add(1, ordering: .sequentiallyConsistent)
    }

    /// Nobody rests from now on; ends `watch`.
    func dismiss() {
        isDismissed.store(true, ordering: .sequentiallyConsistent)
        endSole()
        watchCall.post()
    }

    /// A thread's body, until `dismiss`: has all work again when the one is stuck, as on a disk that does not answer, and
    /// a request waits or none has come for a while. Without requests it sleeps without a timer.
    /// - Parameter isRequestThere: does not wait.
    func watch(_ isRequestThere: () -> Bool) {
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
            if now == seen, quiet > 0, isRequestThere() { endSole() }
            quiet = now == seen ? quiet + 1 : 0
            seen = now
            guard quiet >= Self.quietLooks else { continue }
            // Nobody looks any more, and the next request needs somebody.
            if answered.load(ordering: .sequentiallyConsistent) != now { endSole() }
            rest(since: now)
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
