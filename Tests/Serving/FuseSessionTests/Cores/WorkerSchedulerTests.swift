import FileSystem
import Glibc
import LinuxSystem
import Synchronization
import Testing

@testable import FuseSession

extension WorkerScheduler {
    /// Receives a request for the worker.
    fileprivate func begin(_ wake: LinuxSystem.Semaphore) { _ = received(by: wake, from: 7, isReadAhead: false, at: 0) }

    /// Answers it.
    fileprivate func end(_ wake: LinuxSystem.Semaphore, as role: WorkerSchedule.Role) {
        _ = served(by: wake, duration: 10_000, as: role)
    }

    /// Lets the worker serve a program until it is the single one, if it can be.
    fileprivate func beginSingle(_ wake: LinuxSystem.Semaphore) {
        for _ in 0..<32 where !isSingle(wake) {
            begin(wake)
            end(wake, as: .oneOfMany)
        }
    }
}

/// Sleeping and waking of workers. A lost wake-up blocks a test until the time limit ends it.
@Suite(.timeLimit(.minutes(60)))
struct WorkerSchedulerTests {
    /// A sleeping worker on its own thread. It counts how often it wakes.
    private final class Rester: Sendable {
        let wake = Semaphore()
        let returns = Monitor(0)
        let isEnding = Atomic<Bool>(false)
        private let handle = Monitor<pthread_t?>(nil)
        private let thread: Mutex<BackgroundThread?> = Mutex(nil)

        init(_ scheduler: WorkerScheduler) throws {
            let thread = try BackgroundThread { [self] in
                // The creator of this thread may have blocked the signal.
                var signals = sigset_t()
                sigemptyset(&signals)
                sigaddset(&signals, SIGURG)
                pthread_sigmask(SIG_UNBLOCK, &signals, nil)
                handle.update { $0 = pthread_self() }
                while !isEnding.load(ordering: .acquiring) {
                    if scheduler.restIfNotNeeded(wake) { returns.update { $0 += 1 } } else { sched_yield() }
                }
            }
            self.thread.withLock { $0 = thread }
        }

        func signal(_ number: Int32) {
            _ = pthread_kill(handle.wait { $0 }, number)
        }

        func end(_ scheduler: WorkerScheduler) {
            isEnding.store(true, ordering: .releasing)
            scheduler.dismiss()
            thread.withLock { $0 }?.join()
        }
    }

    @Test("Unless one worker serves alone, nobody sleeps, and the single worker never does")
    func nobodyRests() {
        let scheduler = WorkerScheduler()
        let waiting = [Semaphore(), Semaphore()]
        #expect(!scheduler.restIfNotNeeded(waiting[0]))
        scheduler.beginSingle(waiting[0])
        #expect(scheduler.isSingle(waiting[0]) && !scheduler.isSingle(waiting[1]))
        #expect(!scheduler.restIfNotNeeded(waiting[0]))
        #expect(scheduler.followed.total == 1)
    }

    @Test("Only one worker serves alone, and another can after it ends")
    func oneAlone() {
        let scheduler = WorkerScheduler()
        let waiting = [Semaphore(), Semaphore()]
        scheduler.beginSingle(waiting[0])
        scheduler.beginSingle(waiting[1])
        #expect(scheduler.isSingle(waiting[0]) && !scheduler.isSingle(waiting[1]))
        scheduler.endSingle()
        #expect(!scheduler.isSingle(waiting[0]) && !scheduler.isSingle(waiting[1]))
        scheduler.beginSingle(waiting[1])
        #expect(scheduler.isSingle(waiting[1]))
        #expect(scheduler.followed.total == 2)
    }

    @Test("A worker that has lost its program does not end what another one has begun since")
    func partedLate() {
        let scheduler = WorkerScheduler()
        let waiting = [Semaphore(), Semaphore()]
        scheduler.beginSingle(waiting[0])
        scheduler.begin(waiting[0])
        scheduler.endSingle()
        scheduler.beginSingle(waiting[1])
        scheduler.end(waiting[0], as: .parted)
        #expect(scheduler.isSingle(waiting[1]))
        scheduler.end(waiting[1], as: .parted)
        #expect(!scheduler.isSingle(waiting[1]))
    }

    @Test("All sleeping workers are woken, by the end of the single worker and by `dismiss`", arguments: [false, true])
    func woken(isDismissed: Bool) throws {
        let scheduler = WorkerScheduler()
        let resters = try (0..<3).map { _ in try Rester(scheduler) }
        defer { for rester in resters { rester.end(scheduler) } }
        scheduler.beginSingle(Semaphore())
        isDismissed ? scheduler.dismiss() : scheduler.endSingle()
        // A worker still awake must not fall asleep now.
        for rester in resters { #expect(!scheduler.restIfNotNeeded(rester.wake)) }
        if isDismissed {
            let late = Semaphore()
            scheduler.beginSingle(late)
            #expect(!scheduler.isSingle(late))
        }
    }

    @Test("A signal interrupts a worker's sleep, as wiping and unmounting need")
    func signalled() throws {
        var ignore = sigaction()
        ignore.__sigaction_handler.sa_handler = { _ in }
        sigaction(SIGURG, &ignore, nil)
        let scheduler = WorkerScheduler()
        let rester = try Rester(scheduler)
        defer { rester.end(scheduler) }
        scheduler.beginSingle(Semaphore())
        for round in 1...3 {
            // Signal repeatedly, because a signal just before the sleep is lost.
            while rester.returns.wait(until: soon(), for: { $0 >= round ? true : nil }) == nil {
                rester.signal(SIGURG)
            }
        }
    }

    @Test("No wake-up is lost, however often one worker starts and stops serving alone")
    func changes() throws {
        let scheduler = WorkerScheduler()
        let resters = try (0..<3).map { _ in try Rester(scheduler) }
        defer { for rester in resters { rester.end(scheduler) } }
        let waiting = [Semaphore(), Semaphore()]
        for round in 0..<20_000 {
            scheduler.beginSingle(waiting[round % 2])
            if round % 64 == 0 { sched_yield() }
            scheduler.endSingle()
        }
        scheduler.beginSingle(waiting[0])
        scheduler.endSingle()
        // Each worker must wake again.
        for rester in resters {
            scheduler.beginSingle(waiting[0])
            let before = rester.returns.wait { $0 }
            while rester.returns.wait(until: soon(), for: { $0 > before ? true : nil }) == nil {
                scheduler.endSingle()
                scheduler.beginSingle(waiting[0])
            }
        }
    }

    // MARK: The watch

    /// Runs `body` while a thread watches a scheduler.
    private func watching(_ scheduler: WorkerScheduler, isRequestThere: Bool, _ body: () throws -> Void) throws {
        let watch = try BackgroundThread { scheduler.watch { isRequestThere } }
        defer {
            scheduler.dismiss()
            watch.join()
        }
        try body()
    }

    @Test(
        "A blocked worker no longer serves alone, whether others make requests at once or later",
        arguments: [true, false])
    func stuck(isRequestThere: Bool) throws {
        let scheduler = WorkerScheduler()
        let wake = Semaphore()
        try watching(scheduler, isRequestThere: isRequestThere) {
            scheduler.beginSingle(wake)
            scheduler.begin(wake)
            while scheduler.isSingle(wake) { sched_yield() }
            // Try the same once more.
            scheduler.end(wake, as: .single)
            scheduler.beginSingle(wake)
            scheduler.begin(wake)
            while scheduler.isSingle(wake) { sched_yield() }
        }
    }

    @Test("A worker that has answered still serves alone, however long no request comes")
    func idle() throws {
        let scheduler = WorkerScheduler()
        let wake = Semaphore()
        let looks = Atomic<Int>(0)
        // All this precedes the first check, so the request is over before any.
        scheduler.beginSingle(wake)
        scheduler.begin(wake)
        scheduler.end(wake, as: .single)
        let watch = try BackgroundThread {
            scheduler.watch {
                looks.add(1, ordering: .relaxed)
                return false
            }
        }
        defer {
            scheduler.dismiss()
            watch.join()
        }
        // The checks after a request have ended if there was none for much longer than a check takes.
        var seen = -1
        while seen != looks.load(ordering: .relaxed) || seen == 0 {
            seen = looks.load(ordering: .relaxed)
            usleep(50_000)
        }
        #expect((1...4).contains(seen))
        #expect(scheduler.isSingle(wake))
    }

    @Test("After `dismiss` the watch ends, asleep or not", arguments: [false, true])
    func watchEnds(isAwake: Bool) throws {
        for _ in 0..<100 {
            let (scheduler, wake) = (WorkerScheduler(), Semaphore())
            try watching(scheduler, isRequestThere: false) {
                scheduler.beginSingle(wake)
                if isAwake { scheduler.begin(wake) }
            }
        }
    }

    @Test("No worker serves alone for long while the kernel reads ahead")
    func readAhead() {
        typealias Read = OneWorker.Message
        /// Returns the number of the first request that a worker serves alone, or no longer alone, or nil.
        func change(_ requests: Read..., wasAlone: Bool = false) -> Int? {
            var worker = OneWorker()
            if wasAlone { worker.serve(32) }
            return (1...200).first { number in
                worker.serve(1, requests[number % requests.count])
                return (worker.schedule.role != .oneOfMany) != wasAlone
            }
        }
        #expect(change(Read(size: 4096)) == 33)
        #expect(change(Read(size: 131_072)) == nil)
        // FUSE_READ_LOCKOWNER marks a read past the page cache.
        #expect(change(Read(size: 131_072, flags: 1 << 1)) == 33)
        #expect(change(Read(size: 131_072), wasAlone: true) == 33)
        // Read files of two such requests, one after the other.
        #expect(change(Read(size: 4096), Read(size: 131_072), Read(size: 131_072)) == 33)
        #expect(change(Read(size: 4096), Read(size: 131_072), Read(size: 131_072), wasAlone: true) == nil)
        #expect(change(Read(size: 4096), wasAlone: true) == nil)
    }

    @Test("A worker polls if that was found better, and only for a program whose last request came soon")
    func polls() {
        var worker = OneWorker()
        worker.serve(32)
        #expect(worker.servePolled(10_000) > 9_000)
        worker.serve(1, after: 2 * WorkerSchedule.longestPoll)
        #expect(!worker.schedule.polls)
        worker.serve(1)
        #expect(worker.schedule.polls)
        // Another thread's request, however late, says nothing about the program.
        worker.client += 1
        worker.serve(1, after: 2 * WorkerSchedule.longestPoll)
        #expect(worker.schedule.polls)
    }

    @Test("A worker does not poll while threads wait for a core")
    func busyCores() throws {
        var worker = OneWorker()
        worker.serve(32)
        let scheduler = worker.scheduler
        let watch = try BackgroundThread { scheduler.watch(PollingPermission(cores: IdleCores(of: 0))) { false } }
        defer {
            scheduler.dismiss()
            watch.join()
        }
        // The load is sampled some times first.
        while worker.servePolled(10_000) > 0 {}
        #expect(worker.schedule.role == .single)
    }

    @Test("Requests that no thread waits for begin nothing, but their cost counts")
    func unawaited() {
        var worker = OneWorker()
        for _ in 0..<100 { worker.serve(1, .release) }
        #expect(worker.schedule.role == .oneOfMany)
        for _ in 0..<100 {
            worker.serve(1)
            worker.serve(1, .release)
        }
        #expect(worker.schedule.role == .single)
        for _ in 0..<40 {
            worker.serve(1)
            worker.serve(1, .release, for: 1_000_000)
        }
        #expect(worker.schedule.role == .oneOfMany)
    }

    private func soon() -> ContinuousClock.Instant { .now + .milliseconds(5) }
}
