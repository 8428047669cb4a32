import CLinux
import FoundationEssentials
import Glibc
import LinuxSystem
import TestSupport
import Testing

@testable import FuseSession

/// Detection of a program that is alone, and the CPU on which its worker runs.
@Suite struct ClientAffinityTests {
    private static let quick = 10_000
    private static let slow = 500_000
    private static let window = 32

    /// The results after each of this many requests.
    private func serve(
        _ affinity: inout ClientAffinity, _ threads: [UInt32], duration: Int? = quick, isSingle: Bool = false
    ) -> [ClientAffinity.Finding] {
        threads.map { affinity.served($0, duration: duration, isSingle: isSingle) }
    }

    private func many(_ thread: UInt32, _ count: Int = window) -> [UInt32] { Array(repeating: thread, count: count) }

    @Test("A thread that makes all requests counts as alone when the window ends")
    func alone() {
        var affinity = ClientAffinity()
        let found = serve(&affinity, many(7, 100))
        // The first request only identifies the thread.
        #expect(found.firstIndex(of: .oneClient) == Self.window)
        #expect(!found.contains(.severalClients))
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
        // A thread that was alone then is no longer alone.
        affinity = ClientAffinity()
        #expect(serve(&affinity, many(7, 100)).contains(.oneClient))
        let findings = serve(&affinity, many(7, 2 * Self.window), duration: Self.slow, isSingle: true)
        #expect(findings.contains(.severalClients))
    }

    @Test("A thread that waits for the disk is served by one worker all the same")
    func synchronizing() {
        var affinity = ClientAffinity()
        let found = (0..<100).map { number in
            affinity.served(7, duration: number % 4 == 3 ? nil : Self.quick, isSingle: number > Self.window)
        }
        #expect(found[Self.window] == .oneClient)
        #expect(!found.contains(.severalClients))
    }

    @Test("Up to four of a window's requests may come from others", arguments: [(4, false), (5, true)])
    func others(count: Int, ends: Bool) {
        var affinity = ClientAffinity()
        #expect(serve(&affinity, many(7, Self.window + 1)).last == .oneClient)
        for other in [8, .max] as [UInt32] {
            let threads = many(other, count) + many(7, Self.window - count)
            let found = serve(&affinity, threads, isSingle: true)
            #expect(found.last == (ends ? .severalClients : .oneClient))
        }
    }

    // MARK: The client's core

    /// The state of a thread, by default the calling one, proc_pid_status(5).
    private static func status(_ field: String, of thread: String = "thread-self") -> String {
        let text = (try? String(contentsOfFile: "/proc/\(thread)/status", encoding: .utf8)) ?? ""
        let line = text.split(separator: "\n").first { $0.hasPrefix(field + ":\t") }
        return String(line?.dropFirst(field.count + 2) ?? "")
    }

    /// The cores on which the calling thread may run.
    private static func allowed() -> String { status("Cpus_allowed_list") }

    private static func ownNumber() -> UInt32 { UInt32(status("Pid")) ?? 0 }

    /// Runs the body on its own thread, which nobody else uses again.
    private func onThread<Result: Sendable>(_ body: @escaping @Sendable () -> Result) throws -> Result {
        let result = Monitor<Result?>(nil)
        let thread = try BackgroundThread {
            let value = body()
            result.update { $0 = value }
        }
        defer { thread.join() }
        return result.wait { $0 }
    }

    /// Handles requests of the calling thread.
    private static func take(_ affinity: inout ClientAffinity, _ count: Int, of thread: UInt32, waited: Int) {
        for _ in 0..<count { affinity.received(from: thread, waited: waited) }
    }

    /// Runs the body with a program that may use a single core only.
    private func withBoundProgram(_ body: (_ thread: UInt32, _ core: Int32) throws -> Void) throws {
        let core = try onThread { linux_core_of(Int32(bitPattern: Self.ownNumber())) }
        let program = try Command(["taskset", "-c", "\(core)", "sleep", "300"]).start()
        defer { program.kill(SIGKILL) }
        // taskset binds itself before it becomes the program.
        try poll("sleep") { Self.status("Cpus_allowed_list", of: "\(program.pid)") == "\(core)" }
        try body(UInt32(program.pid), core)
    }

    @Test("The worker moves to the client's core if the client returns late, and may run anywhere afterwards")
    func core() throws {
        try withBoundProgram { (thread, core) in
            let (before, none, stays, polls, after) = try onThread {
                let before = Self.allowed()
                var affinity = ClientAffinity()
                _ = affinity.served(thread, duration: Self.quick, isSingle: false)
                // One late return is not enough. Requests of other threads do not count.
                Self.take(&affinity, 1, of: thread, waited: Self.slow)
                Self.take(&affinity, 9, of: thread + 1, waited: Self.slow)
                let none = Self.allowed()
                Self.take(&affinity, 1, of: thread, waited: Self.slow)
                let stays = Self.allowed()
                // There it leaves the core to the program.
                let polls = (0..<320).contains { _ in
                    affinity.received(from: thread, waited: affinity.polls ? 1_000 : 30_000)
                    return affinity.polls
                }
                affinity.leave()
                return (before, none, stays, polls, Self.allowed())
            }
            #expect(none == before)
            #expect(Int32(stays) == core)
            #expect(!polls)
            #expect(after == before)
        }
    }

    @Test("A program that /proc does not describe is not looked up again and again")
    func hidden() throws {
        let (before, after, longWaitLimit) = try onThread {
            let before = Self.allowed()
            var affinity = ClientAffinity()
            // No thread has this number (PID_MAX_LIMIT, proc(5)).
            let gone: UInt32 = 1 << 22 + 1
            _ = affinity.served(gone, duration: Self.quick, isSingle: false)
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

    @Test("A worker stays near a program where that may run, and nowhere near a thread that does not exist")
    func coresOfThread() throws {
        func stay(_ thread: Int32) throws -> (lowest: Int32, count: Int32) {
            try onThread {
                var count: Int32 = 0
                let lowest = linux_stay_near(thread, &count)
                return (lowest, count)
            }
        }
        let gone = try stay(1 << 22 + 1)
        #expect(gone.lowest == -1)
        let own = try stay(getpid())
        #expect(own.lowest >= 0 && own.count >= 1 && own.count <= sysconf(Int32(_SC_NPROCESSORS_CONF)))
        try withBoundProgram { (thread, core) in
            let bound = try stay(Int32(thread))
            #expect(bound == (core, 1))
        }
    }

    // MARK: Polling

    /// How many of 10,000 requests are polled for, if the two ways take so long.
    private func polled(_ trial: inout PollTrial, polling: Int, sleeping: Int) -> Int {
        (0..<10_000).count { _ in
            defer { trial.received(waited: trial.polls ? polling : sleeping) }
            return trial.polls
        }
    }

    @Test(
        "A worker polls if requests come sooner then, tries the other way now and then, and notices that it has become better"
    )
    func trial() {
        var trial = PollTrial()
        #expect(polled(&trial, polling: 5_000, sleeping: 20_000) > 9_000)
        #expect(polled(&trial, polling: 60_000, sleeping: 10_000) < 1_000)
        #expect((1..<1_000).contains(polled(&trial, polling: 60_000, sleeping: 10_000)))
        #expect(polled(&trial, polling: 5_000, sleeping: 20_000) > 5_000)
    }

    @Test("A worker does not poll for a program that is slow")
    func slowProgram() throws {
        let (count, quick, slow) = try onThread {
            let own = Self.ownNumber()
            func polls(waited: Int) -> Bool {
                var affinity = ClientAffinity()
                _ = affinity.served(own, duration: Self.quick, isSingle: false)
                // Sleeping takes longer.
                for _ in 0..<320 { affinity.received(from: own, waited: affinity.polls ? waited / 2 : waited) }
                return affinity.polls
            }
            var count: Int32 = 0
            _ = linux_stay_near(Int32(bitPattern: own), &count)
            return (count, polls(waited: 30_000), polls(waited: 1_000_000))
        }
        // Where each core has a cache of its own, the worker follows the program instead.
        #expect(quick == (count > 1))
        #expect(!slow)
    }
}
