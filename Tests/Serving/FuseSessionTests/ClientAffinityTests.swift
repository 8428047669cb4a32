import CLinux
import FoundationEssentials
import Glibc
import LinuxSystem
import TestSupport
import Testing

@testable import FuseSession

/// Detection of a single client program, and the CPU for its worker.
@Suite struct ClientAffinityTests {
    private static let quick = 10_000
    private static let slow = 500_000
    private static let window = 32

    /// Serves requests of these threads with one worker, and returns the finding after each.
    private func serve(
        _ affinity: inout ClientAffinity, _ threads: [UInt32], duration: Int? = quick, isSingle: Bool = false
    ) -> [ClientAffinity.Finding] {
        let scheduler = WorkerScheduler()
        return threads.map { thread in
            let run = scheduler.received(from: thread, isReadAhead: false, at: 0)?.run ?? 0
            return affinity.served(thread, duration: duration, run: run, isSingle: isSingle)
        }
    }

    private func many(_ thread: UInt32, _ count: Int = window) -> [UInt32] { Array(repeating: thread, count: count) }

    @Test("A thread that makes all requests counts as alone when the window ends")
    func alone() {
        var affinity = ClientAffinity()
        let found = serve(&affinity, many(7, 100))
        #expect(found.firstIndex(of: .oneClient) == Self.window - 1)
        #expect(!found.contains(.severalClients))
    }

    @Test("A thread is not alone because a worker gets its requests only: others get those of other threads")
    func pairs() {
        let scheduler = WorkerScheduler()
        var affinities: [UInt32: ClientAffinity] = [7: ClientAffinity(), 8: ClientAffinity()]
        for _ in 0..<200 {
            for thread in [7, 7, 8] as [UInt32] {
                let run = scheduler.received(from: thread, isReadAhead: false, at: 0)?.run ?? 0
                let found = affinities[thread]?.served(thread, duration: Self.quick, run: run, isSingle: false)
                #expect(found == .nothing)
            }
        }
    }

    @Test(
        "Two threads that alternate are not alone, nor is a thread of another PID namespace",
        arguments: [[7, 8], [.max]] as [[UInt32]])
    func notAlone(threads: [UInt32]) {
        var affinity = ClientAffinity()
        let found = serve(&affinity, (0..<200).map { threads[$0 % threads.count] })
        #expect(found.allSatisfy { $0 == .nothing })
    }

    @Test("A request that nobody waits for changes nothing")
    func nobody() {
        var affinity = ClientAffinity()
        let mixed = serve(&affinity, (0..<200).map { $0 % 2 == 0 ? 7 : 0 })
        #expect(mixed.contains(.oneClient))
        let none = serve(&affinity, many(0, 200), isSingle: true)
        #expect(none.allSatisfy { $0 == .nothing })
    }

    @Test("Long requests are served faster by several workers")
    func slow() {
        var affinity = ClientAffinity()
        let before = serve(&affinity, many(7, 200), duration: Self.slow)
        #expect(before.allSatisfy { $0 == .nothing })
        // With slow requests, a thread served alone no longer counts as alone.
        affinity = ClientAffinity()
        #expect(serve(&affinity, many(7, 100)).contains(.oneClient))
        let findings = serve(&affinity, many(7, 2 * Self.window), duration: Self.slow, isSingle: true)
        #expect(findings.contains(.severalClients))
    }

    @Test("A thread that waits for the disk is served by one worker all the same")
    func synchronizing() {
        var affinity = ClientAffinity()
        let found = (1...100).map { number in
            affinity.served(
                7, duration: number % 4 == 3 ? nil : Self.quick, run: number, isSingle: number > Self.window)
        }
        #expect(found[Self.window - 1] == .oneClient)
        #expect(!found.contains(.severalClients))
    }

    @Test("Up to four of a window's requests may come from others", arguments: [(4, false), (5, true)])
    func others(count: Int, ends: Bool) {
        var affinity = ClientAffinity()
        #expect(serve(&affinity, many(7)).last == .oneClient)
        for other in [8, .max] as [UInt32] {
            let threads = many(other, count) + many(7, Self.window - count)
            let found = serve(&affinity, threads, isSingle: true)
            #expect(found.last == (ends ? .severalClients : .nothing))
        }
    }

    // MARK: The client's core

    /// Returns a field of a thread's state, by default the calling one's, proc_pid_status(5).
    private static func status(_ field: String, of thread: String = "thread-self") -> String {
        let text = (try? String(contentsOfFile: "/proc/\(thread)/status", encoding: .utf8)) ?? ""
        let line = text.split(separator: "\n").first { $0.hasPrefix(field + ":\t") }
        return String(line?.dropFirst(field.count + 2) ?? "")
    }

    /// Returns the cores on which the calling thread may run.
    private static func allowed() -> String { status("Cpus_allowed_list") }

    private static func ownNumber() -> UInt32 { UInt32(status("Pid")) ?? 0 }

    /// Runs the body on a thread of its own, which is not used again.
    private func onThread<Result: Sendable>(_ body: @escaping @Sendable () -> Result) throws -> Result {
        let result = Monitor<Result?>(nil)
        let thread = try BackgroundThread {
            let value = body()
            result.update { $0 = value }
        }
        defer { thread.join() }
        return result.wait { $0 }
    }

    /// Handles requests by the thread with this number.
    private static func take(_ affinity: inout ClientAffinity, _ count: Int, of thread: UInt32, waited: Int) {
        for _ in 0..<count { affinity.received(from: thread, waited: waited) }
    }

    /// Runs the body with a program bound to a single core, by default the calling thread's.
    private func withBoundProgram(
        on core: Int32? = nil, _ body: (_ thread: UInt32, _ core: Int32) throws -> Void
    ) throws {
        let core = try core ?? onThread { linux_core_of(Int32(bitPattern: Self.ownNumber())) }
        let program = try Command(["taskset", "-c", "\(core)", "sleep", "300"]).start()
        defer { program.kill(SIGKILL) }
        // Wait until taskset has bound itself and become the program.
        try poll("sleep") { Self.status("Cpus_allowed_list", of: "\(program.pid)") == "\(core)" }
        try body(UInt32(program.pid), core)
    }

    @Test("The worker moves to the client's core if the client returns late, and may run anywhere afterwards")
    func core() throws {
        try withBoundProgram { (thread, core) in
            let (before, none, stays, away, again, after) = try onThread {
                let before = Self.allowed()
                var affinity = ClientAffinity()
                _ = affinity.served(thread, duration: Self.quick, run: 1, isSingle: false)
                // One late return is not enough, and requests of other threads do not count.
                Self.take(&affinity, 1, of: thread, waited: Self.slow)
                Self.take(&affinity, 9, of: thread + 1, waited: Self.slow)
                let none = Self.allowed()
                Self.take(&affinity, 1, of: thread, waited: Self.slow)
                let stays = Self.allowed()
                // The affinity must not look the core up again and again.
                Self.take(&affinity, 1_000, of: thread, waited: Self.slow)
                affinity.placement = .polling
                Self.take(&affinity, 1, of: thread, waited: Self.slow)
                let away = Self.allowed()
                affinity.placement = .clientCore
                Self.take(&affinity, 2, of: thread, waited: Self.slow)
                let again = Self.allowed()
                affinity.leave()
                return (before, none, stays, away, again, Self.allowed())
            }
            #expect(none == before)
            #expect(Int32(stays) == core)
            #expect(away == before)
            #expect(Int32(again) == core)
            #expect(after == before)
        }
    }

    @Test("A worker does not follow a program to another core, where the two would change places for ever")
    func moved() throws {
        let cores = Self.allowed().split { $0 == "," || $0 == "-" }.compactMap { Int32($0) }
        guard let first = cores.first, let last = cores.last, first != last else { return }
        try withBoundProgram(on: first) { (before, _) in
            try withBoundProgram(on: last) { (after, _) in
                let (bound, found, later) = try onThread {
                    var affinity = ClientAffinity()
                    _ = affinity.served(before, duration: Self.quick, run: 1, isSingle: false)
                    Self.take(&affinity, 2, of: before, waited: Self.slow)
                    let bound = Self.allowed()
                    // For the worker, this looks as if its program had moved to another core.
                    _ = affinity.served(after, duration: Self.quick, run: 1, isSingle: false)
                    Self.take(&affinity, 2, of: after, waited: Self.slow)
                    let found = affinity.served(after, duration: Self.quick, run: 1, isSingle: true)
                    return (bound, found, Self.allowed())
                }
                #expect(Int32(bound) == first)
                #expect(found == .severalClients)
                #expect(later == bound)
            }
        }
    }

    @Test("A program beside busy ones is not looked up at every second late request")
    func busyMachine() throws {
        let numbers = try onThread {
            var affinity = ClientAffinity()
            _ = affinity.served(Self.ownNumber(), duration: Self.quick, run: 1, isSingle: false)
            var looks = 0
            for _ in 0..<1_000 {
                Self.take(&affinity, 2, of: Self.ownNumber(), waited: Self.slow)
                if affinity.longWaitLimit > 2 { looks += 1 }
                Self.take(&affinity, 1, of: Self.ownNumber(), waited: Self.quick)
            }
            return looks
        }
        #expect((1...1_000 / 4).contains(numbers))
    }

    @Test("A program that /proc does not describe is not looked up again and again")
    func hidden() throws {
        let (before, after, longWaitLimit) = try onThread {
            let before = Self.allowed()
            var affinity = ClientAffinity()
            // Threads cannot have this number (PID_MAX_LIMIT, proc(5)).
            let gone: UInt32 = 1 << 22 + 1
            _ = affinity.served(gone, duration: Self.quick, run: 1, isSingle: false)
            Self.take(&affinity, 10_000, of: gone, waited: Self.slow)
            return (before, Self.allowed(), affinity.longWaitLimit)
        }
        #expect(after == before)
        #expect(longWaitLimit > 100)
    }

    @Test("The core of a thread is returned, and none for a thread that does not exist")
    func coreOfThread() {
        #expect((0..<sysconf(Int32(_SC_NPROCESSORS_CONF))).contains(Int(linux_core_of(Int32(Self.ownNumber())))))
        #expect(linux_core_of(1 << 22 + 1) == -1)
    }

    @Test("A worker polls if that was found better, and only for a program whose last request came soon")
    func polls() {
        var affinity = ClientAffinity()
        _ = affinity.served(7, duration: Self.quick, run: 1, isSingle: false)
        Self.take(&affinity, 1, of: 7, waited: Self.quick)
        #expect(!affinity.polls)
        affinity.placement = .polling
        #expect(affinity.polls)
        Self.take(&affinity, 1, of: 7, waited: Self.slow)
        #expect(!affinity.polls)
    }
}

/// The trial of placements for a single worker.
@Suite struct PlacementTrialTests {
    /// A program that sends each request so long after the one before, in nanoseconds.
    private struct Program {
        var clientCore: Int
        var polling: Int
        var time = 0
        var mayPoll = true
        var trial = PlacementTrial()

        /// Makes `count` requests. Returns how many of them were polled for.
        mutating func polled(_ count: Int, from threads: [UInt32] = [7]) -> Int {
            (0..<count).count { number in
                time += trial.placement == .polling ? polling : clientCore
                trial.received(from: threads[number % threads.count], at: time, mayPoll: mayPoll)
                return trial.placement == .polling
            }
        }
    }

    /// Number of requests within which each placement is tried at least once.
    private static let cycle = PlacementTrial.window * PlacementTrial.interval + 2 * PlacementTrial.settling
    /// Number of these that try the worse placement.
    private static let attempt = PlacementTrial.window + PlacementTrial.settling

    @Test("The quicker placement is used, and the other one is tried now and then")
    func quicker() {
        var core = Program(clientCore: 10_000, polling: 20_000)
        #expect((1...2 * Self.attempt).contains(core.polled(2 * Self.cycle)))
        var polling = Program(clientCore: 30_000, polling: 20_000)
        #expect(polling.polled(Self.cycle) > Self.cycle - 2 * Self.attempt)
    }

    @Test("Polling must be quicker by a fifth")
    func clearly() {
        var little = Program(clientCore: 20_000, polling: 17_000)
        #expect(little.polled(Self.cycle) <= Self.attempt)
        var clearly = Program(clientCore: 20_000, polling: 15_000)
        #expect(clearly.polled(Self.cycle) > Self.cycle / 2)
    }

    @Test("A placement that has become worse is left, and one that has become better is found")
    func changes() {
        var program = Program(clientCore: 30_000, polling: 20_000)
        _ = program.polled(Self.cycle)
        program.polling = 90_000
        #expect(program.polled(Self.cycle) < 8 * PlacementTrial.window)
        program.polling = 5_000
        _ = program.polled(2 * Self.cycle)
        #expect(program.polled(Self.cycle) > Self.cycle / 2)
    }

    @Test("A worker that may not poll does not, whatever was measured, and polls again later")
    func forbidden() {
        var program = Program(clientCore: 30_000, polling: 20_000)
        _ = program.polled(Self.cycle)
        program.mayPoll = false
        #expect(program.polled(Self.cycle) == 0)
        program.mayPoll = true
        #expect(program.polled(Self.cycle) > Self.cycle - 2 * Self.attempt)
    }

    @Test("Requests that threads send in turns are not compared")
    func severalClients() {
        var program = Program(clientCore: 30_000, polling: 20_000)
        #expect(program.polled(2 * Self.cycle, from: [7, 8]) == 0)
    }

    @Test("The scheduler compares the requests that a program waits for")
    func scheduler() {
        let scheduler = WorkerScheduler()
        var (time, polled, unawaited) = (0, 0, 0)
        for _ in 0..<Self.cycle {
            time += 10_000
            if scheduler.received(from: 0, isReadAhead: false, at: time) != nil { unawaited += 1 }
            time += 10_000
            if scheduler.received(from: 7, isReadAhead: false, at: time)?.placement == .polling { polled += 1 }
        }
        #expect(unawaited == 0)
        #expect(polled > 0)
    }

    @Test("A program that computes for longer than a request takes is not polled for")
    func slowProgram() {
        var program = Program(clientCore: 1_020_000, polling: 1_000_000)
        #expect(program.polled(Self.cycle) <= Self.attempt)
    }
}
