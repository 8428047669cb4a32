import FileSystem
import Glibc
import LinuxSystem
import Synchronization
import Testing

@testable import FuseSession

/// Who rests, and who is woken. A lost wake-up hangs a test, which the time limit ends.
@Suite(.timeLimit(.minutes(20)))
struct WorkerSchedulerTests {
    /// A worker that rests, on a thread of its own, and tells how often it came back.
    private final class Rester: Sendable {
        let wake = Semaphore()
        let returns = Monitor(0)
        let isEnding = Atomic<Bool>(false)
        private let handle = Monitor<pthread_t?>(nil)
        private let thread: Mutex<BackgroundThread?> = Mutex(nil)

        init(_ scheduler: WorkerScheduler) throws {
            let thread = try BackgroundThread { [self] in
                // Whoever made this thread may have blocked it.
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

    @Test("Without one that serves alone nobody rests, nor does that one")
    func nobodyRests() {
        let scheduler = WorkerScheduler()
        let waiting = [Semaphore(), Semaphore()]
        #expect(!scheduler.restIfNotNeeded(waiting[0]))
        scheduler.beginSingle(waiting[0])
        #expect(scheduler.isSingle(waiting[0]) && !scheduler.isSingle(waiting[1]))
        #expect(!scheduler.restIfNotNeeded(waiting[0]))
        #expect(scheduler.followed.total == 1)
    }

    @Test("Only one serves alone, and after its end another may")
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

    @Test("All who rest are woken, by the end of the single worker and by `dismiss`", arguments: [false, true])
    func woken(isDismissed: Bool) throws {
        let scheduler = WorkerScheduler()
        let resters = try (0..<3).map { _ in try Rester(scheduler) }
        defer { for rester in resters { rester.end(scheduler) } }
        scheduler.beginSingle(Semaphore())
        isDismissed ? scheduler.dismiss() : scheduler.endSingle()
        // Whoever had not come to rest by then does not now.
        for rester in resters { #expect(!scheduler.restIfNotNeeded(rester.wake)) }
        if isDismissed {
            let late = Semaphore()
            scheduler.beginSingle(late)
            #expect(!scheduler.isSingle(late))
        }
    }

    @Test("A signal gets one out of its rest, as wiping and unmounting need")
    func signalled() throws {
        var ignore = sigaction()
        ignore.__sigaction_handler.sa_handler = { _ in }
        sigaction(SIGURG, &ignore, nil)
        let scheduler = WorkerScheduler()
        let rester = try Rester(scheduler)
        defer { rester.end(scheduler) }
        scheduler.beginSingle(Semaphore())
        for round in 1...3 {
            // One that comes just before the rest is lost.
            while rester.returns.wait(until: soon(), for: { $0 >= round ? true : nil }) == nil {
                rester.signal(SIGURG)
            }
        }
    }

    @Test("No wake-up is lost, however often one begins and ends")
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
        // Each comes round again.
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

    /// Runs `body` beside a scheduler's watch.
    private func watching(_ scheduler: WorkerScheduler, isRequestThere: Bool, _ body: () throws -> Void) throws {
        let watch = try BackgroundThread { scheduler.watch { isRequestThere } }
        defer {
            scheduler.dismiss()
            watch.join()
        }
        try body()
    }

    @Test("One that is stuck is not alone any more, whether others ask at once or later", arguments: [true, false])
    func stuck(isRequestThere: Bool) throws {
        let scheduler = WorkerScheduler()
        let wake = Semaphore()
        try watching(scheduler, isRequestThere: isRequestThere) {
            scheduler.beginSingle(wake)
            scheduler.singleBegan()
            while scheduler.isSingle(wake) { sched_yield() }
            // And again.
            scheduler.singleEnded()
            scheduler.beginSingle(wake)
            scheduler.singleBegan()
            while scheduler.isSingle(wake) { sched_yield() }
        }
    }

    @Test("One that has answered stays alone, however long nobody asks")
    func idle() throws {
        let scheduler = WorkerScheduler()
        let wake = Semaphore()
        let looks = Atomic<Int>(0)
        // Before somebody looks, so that no look comes between the two.
        scheduler.beginSingle(wake)
        scheduler.singleBegan()
        scheduler.singleEnded()
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
        // The looks that follow a request have ended when none is made for much longer than they take.
        var seen = -1
        while seen != looks.load(ordering: .relaxed) || seen == 0 {
            seen = looks.load(ordering: .relaxed)
            usleep(50_000)
        }
        #expect((1...4).contains(seen))
        #expect(scheduler.isSingle(wake))
    }

    @Test("Dismissed, the watch ends, asleep or not", arguments: [false, true])
    func watchEnds(isAwake: Bool) throws {
        for _ in 0..<100 {
            let scheduler = WorkerScheduler()
            try watching(scheduler, isRequestThere: false) {
                if isAwake { scheduler.singleBegan() }
            }
        }
    }

    private func soon() -> timespec {
        let time = monotonicMilliseconds() + 5
        return timespec(tv_sec: time / 1000, tv_nsec: time % 1000 * 1_000_000)
    }
}
