import Glibc
import LinuxSystem
import Synchronization
import Testing

@Suite(.timeLimit(.minutes(60)))
struct IdleCoresTests {
    @Test("No core is idle while there is a busy thread for each")
    func busy() throws {
        let isEnding = Atomic(false)
        let threads = try (0..<sysconf(Int32(_SC_NPROCESSORS_ONLN))).map { _ in
            try BackgroundThread { while !isEnding.load(ordering: .relaxed) {} }
        }
        defer {
            isEnding.store(true, ordering: .relaxed)
            for thread in threads { thread.join() }
        }
        let cores = IdleCores()
        while cores.isThereOne { sched_yield() }
    }

    @Test("Fewer threads than cores leave one idle", arguments: [(Int.max, true), (0, false)])
    func few(count: Int, isThereOne: Bool) {
        #expect(IdleCores(of: count).isThereOne == isThereOne)
    }
}
