import FileSystem
import Glibc
import LinuxSystem
import Synchronization
import Testing

@testable import FuseSession

/// Who rests, and who is woken. A lost wake-up hangs a test, which the time limit ends.
@Suite(.timeLimit(.minutes(20)))
struct WorkerCrewTests {
    /// A worker that rests, on a thread of its own, and tells how often it came back.
    private final class Rester: Sendable {
        let bell = Semaphore()
        let returns = Monitor(0)
        let isEnding = Atomic<Bool>(false)
        private let handle = Monitor<pthread_t?>(nil)
        private let thread: Mutex<BackgroundThread?> = Mutex(nil)

        init(_ crew: WorkerCrew) throws {
            let thread = try BackgroundThread { [self] in
                // Whoever made this thread may have blocked it.
                var wake = sigset_t()
                sigemptyset(&wake)
                sigaddset(&wake, SIGURG)
                pthread_sigmask(SIG_UNBLOCK, &wake, nil)
                handle.update { $0 = pthread_self() }
                while !isEnding.load(ordering: .acquiring) {
                    if crew.restIfNotNeeded(bell) { returns.update { $0 += 1 } } else { sched_yield() }
                }
            }
            self.thread.withLock { $0 = thread }
        }

        func signal(_ number: Int32) {
            _ = pthread_kill(handle.wait { $0 }, number)
        }

        func end(_ crew: WorkerCrew) {
            isEnding.store(true, ordering: .releasing)
            crew.dismiss()
            thread.withLock { $0 }?.join()
        }
    }

    @Test("Without one that serves alone nobody rests, nor does that one")
    func nobodyRests() {
        let crew = WorkerCrew()
        let bells = [Semaphore(), Semaphore()]
        #expect(!crew.restIfNotNeeded(bells[0]))
        crew.beginSole(bells[0])
        #expect(crew.isSole(bells[0]) && !crew.isSole(bells[1]))
        #expect(!crew.restIfNotNeeded(bells[0]))
        #expect(crew.followed.total == 1)
    }

    @Test("Only one serves alone, and after its end another may")
    func oneAlone() {
        let crew = WorkerCrew()
        let bells = [Semaphore(), Semaphore()]
        crew.beginSole(bells[0])
        crew.beginSole(bells[1])
        #expect(crew.isSole(bells[0]) && !crew.isSole(bells[1]))
        crew.endSole()
        #expect(!crew.isSole(bells[0]) && !crew.isSole(bells[1]))
        crew.beginSole(bells[1])
        #expect(crew.isSole(bells[1]))
        #expect(crew.followed.total == 2)
    }

    @Test("All who rest are woken, by the end of the one and by the crew's", arguments: [false, true])
    func woken(isDismissed: Bool) throws {
        let crew = WorkerCrew()
        let resters = try (0..<3).map { _ in try Rester(crew) }
        defer { for rester in resters { rester.end(crew) } }
        crew.beginSole(Semaphore())
        isDismissed ? crew.dismiss() : crew.endSole()
        // Whoever had not come to rest by then does not now.
        for rester in resters { #expect(!crew.restIfNotNeeded(rester.bell)) }
        if isDismissed {
            let late = Semaphore()
            crew.beginSole(late)
            #expect(!crew.isSole(late))
        }
    }

    @Test("A signal gets one out of its rest, as wiping and unmounting need")
    func signalled() throws {
        var ignore = sigaction()
        ignore.__sigaction_handler.sa_handler = { _ in }
        sigaction(SIGURG, &ignore, nil)
        let crew = WorkerCrew()
        let rester = try Rester(crew)
        defer { rester.end(crew) }
        crew.beginSole(Semaphore())
        for round in 1...3 {
            // One that comes just before the rest is lost.
            while rester.returns.wait(until: soon(), for: { $0 >= round ? true : nil }) == nil {
                rester.signal(SIGURG)
            }
        }
    }

    @Test("No wake-up is lost, however often one begins and ends")
    func changes() throws {
        let crew = WorkerCrew()
        let resters = try (0..<3).map { _ in try Rester(crew) }
        defer { for rester in resters { rester.end(crew) } }
        let bells = [Semaphore(), Semaphore()]
        for round in 0..<20_000 {
            crew.beginSole(bells[round % 2])
            if round % 64 == 0 { sched_yield() }
            crew.endSole()
        }
        crew.beginSole(bells[0])
        crew.endSole()
        // Each comes round again.
        for rester in resters {
            crew.beginSole(bells[0])
            let before = rester.returns.wait { $0 }
            while rester.returns.wait(until: soon(), for: { $0 > before ? true : nil }) == nil {
                crew.endSole()
                crew.beginSole(bells[0])
            }
        }
    }

    // MARK: The watch

    /// Runs `body` beside a crew's watch.
    private func watching(_ crew: WorkerCrew, isRequestThere: Bool, _ body: () throws -> Void) throws {
        let watch = try BackgroundThread { crew.watch { isRequestThere } }
        defer {
            crew.dismiss()
            watch.join()
        }
        try body()
    }

    @Test("One that is stuck is not alone any more, whether others ask at once or later", arguments: [true, false])
    func stuck(isRequestThere: Bool) throws {
        let crew = WorkerCrew()
        let bell = Semaphore()
        try watching(crew, isRequestThere: isRequestThere) {
            crew.beginSole(bell)
            crew.soleTook()
            while crew.isSole(bell) { sched_yield() }
            // And again.
            crew.soleAnswered()
            crew.beginSole(bell)
            crew.soleTook()
            while crew.isSole(bell) { sched_yield() }
        }
    }

    @Test("One that has answered stays alone, however long nobody asks")
    func idle() throws {
        let crew = WorkerCrew()
        let bell = Semaphore()
        let looks = Atomic<Int>(0)
        // Before somebody looks, so that no look comes between the two.
        crew.beginSole(bell)
        crew.soleTook()
        crew.soleAnswered()
        let watch = try BackgroundThread {
            crew.watch {
                looks.add(1, ordering: .relaxed)
                return false
            }
        }
        defer {
            crew.dismiss()
            watch.join()
        }
        // The looks that follow a request have ended when none is made for much longer than they take.
        var seen = -1
        while seen != looks.load(ordering: .relaxed) || seen == 0 {
            seen = looks.load(ordering: .relaxed)
            usleep(50_000)
        }
        #expect((1...4).contains(seen))
        #expect(crew.isSole(bell))
    }

    @Test("Dismissed, the watch ends, asleep or not", arguments: [false, true])
    func watchEnds(isAwake: Bool) throws {
        for _ in 0..<100 {
            let crew = WorkerCrew()
            try watching(crew, isRequestThere: false) {
                if isAwake { crew.soleTook() }
            }
        }
    }

    private func soon() -> timespec {
        let time = monotonicMilliseconds() + 5
        return timespec(tv_sec: time / 1000, tv_nsec: time % 1000 * 1_000_000)
    }
}
