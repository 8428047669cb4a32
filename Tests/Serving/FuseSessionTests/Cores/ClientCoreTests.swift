import CLinux
import FoundationEssentials
import Glibc
import LinuxSystem
import TestSupport
import Testing

@testable import FuseSession

/// The core of a single worker's client.
@Suite struct ClientCoreTests {
    private static let quick = 10_000
    private static let slow = 500_000

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

    /// Counts requests of the thread with this number.
    private static func take(_ core: inout ClientCore, _ count: Int, of thread: UInt32, waited: Int) {
        for _ in 0..<count {
            let isNear = core.received(from: thread, waited: waited)
            #expect(isNear)
        }
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
                var core = ClientCore()
                // One late request is not enough.
                Self.take(&core, 1, of: thread, waited: Self.slow)
                let none = Self.allowed()
                Self.take(&core, 1, of: thread, waited: Self.slow)
                let stays = Self.allowed()
                // The core must not be looked up again and again.
                Self.take(&core, 1_000, of: thread, waited: Self.slow)
                #expect(core.longWaitLimit > 100)
                core.leave()
                let away = Self.allowed()
                Self.take(&core, 2, of: thread, waited: Self.slow)
                let again = Self.allowed()
                core.leave()
                return (before, none, stays, away, again, Self.allowed())
            }
            #expect(none == before)
            #expect(Int32(stays) == core)
            #expect(away == before)
            #expect(Int32(again) == core)
            #expect(after == before)
        }
    }

    @Test("A worker that finds its program on another core does not follow it, and the others serve again")
    func moved() throws {
        let cores = Self.allowed().split { $0 == "," || $0 == "-" }.compactMap { Int32($0) }
        guard let first = cores.first, let last = cores.last, first != last else { return }
        let stage = Monitor(0)
        let number = Monitor<UInt32?>(nil)
        let program = try BackgroundThread {
            #expect(linux_stay_on_core(first) == 0)
            number.update { $0 = UInt32(linux_thread()) }
            stage.wait { $0 == 1 ? () : nil }
            #expect(linux_stay_on_core(last) == 0)
            stage.update { $0 = 2 }
            stage.wait { $0 == 3 ? () : nil }
        }
        defer {
            stage.update { $0 = 3 }
            program.join()
        }
        try onThread {
            let before = Self.allowed()
            var worker = OneWorker(client: number.wait { $0 })
            worker.serve(32)
            worker.serve(2, after: Self.slow)
            #expect(worker.schedule.role == .single)
            #expect(Int32(Self.allowed()) == first)
            stage.update { $0 = 1 }
            stage.wait { $0 == 2 ? () : nil }
            worker.serve(1, after: Self.slow)
            #expect(worker.schedule.role == .single)
            worker.serve(1, after: Self.slow)
            #expect(worker.schedule.role == .parted)
            #expect(Int32(Self.allowed()) == first)
            // After another program's request, all workers serve for a while.
            worker.client += 1
            worker.serve(1)
            #expect(worker.schedule.role == .oneOfMany)
            #expect(Self.allowed() == before)
        }
    }

    /// Runs the body with a single worker bound to its program's core, on a thread that could use all of `before`.
    private func withBoundWorker(
        _ body: @escaping @Sendable (_ worker: inout OneWorker, _ before: String) -> Void
    ) throws {
        try withBoundProgram { (thread, core) in
            try onThread {
                let before = Self.allowed()
                var worker = OneWorker(client: thread)
                worker.serve(32)
                worker.serve(2, after: Self.slow)
                #expect(Int32(Self.allowed()) == core)
                body(&worker, before)
            }
        }
    }

    @Test("A worker that is alone again may run on any core, because its program may be another one")
    func aloneAgain() throws {
        try withBoundWorker { worker, before in
            let scheduler = worker.scheduler
            worker.serve(1) { scheduler.endSingle() }
            #expect(Self.allowed() == before)
        }
    }

    @Test("A worker that polls may run on any core")
    func polling() throws {
        try withBoundWorker { worker, before in
            // Polling is tried after as many requests.
            worker.serve(PlacementTrial.window)
            #expect(worker.schedule.polls)
            #expect(Self.allowed() == before)
        }
    }

    @Test("A program beside busy ones is not looked up at every second late request")
    func busyMachine() throws {
        let numbers = try onThread {
            var core = ClientCore()
            var looks = 0
            for _ in 0..<1_000 {
                Self.take(&core, 2, of: Self.ownNumber(), waited: Self.slow)
                if core.longWaitLimit > 2 { looks += 1 }
                Self.take(&core, 1, of: Self.ownNumber(), waited: Self.quick)
            }
            return looks
        }
        #expect((1...1_000 / 4).contains(numbers))
    }

    @Test("A program that /proc does not describe is not looked up again and again")
    func hidden() throws {
        let (before, after, longWaitLimit) = try onThread {
            let before = Self.allowed()
            var core = ClientCore()
            // Threads cannot have this number (PID_MAX_LIMIT, proc(5)).
            let gone: UInt32 = 1 << 22 + 1
            Self.take(&core, 10_000, of: gone, waited: Self.slow)
            return (before, Self.allowed(), core.longWaitLimit)
        }
        #expect(after == before)
        #expect(longWaitLimit > 100)
    }

    @Test("The core of a thread is returned, and none for a thread that does not exist")
    func coreOfThread() {
        #expect((0..<sysconf(Int32(_SC_NPROCESSORS_CONF))).contains(Int(linux_core_of(Int32(Self.ownNumber())))))
        #expect(linux_core_of(1 << 22 + 1) == -1)
    }
}
