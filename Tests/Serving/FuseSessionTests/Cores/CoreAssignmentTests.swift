import Testing

@testable import FuseSession

/// Detection of a single client.
@Suite struct CoreAssignmentTests {
    private static let quick = 10_000
    private static let slow = 500_000
    private static let window = 32

    /// Serves requests of these threads by one worker. Returns true for each after which it is the single one.
    private func serve(
        _ assignment: inout CoreAssignment, _ threads: [UInt32], duration: Int? = quick
    ) -> [Bool] {
        threads.map { thread in
            assignment.received(from: thread, isReadAhead: false, at: 0, mayPoll: true)
            let wasAlone = assignment.alone != nil
            let hasBegun = assignment.served(by: 1, duration: duration)
            #expect(hasBegun == (!wasAlone && assignment.alone != nil))
            return assignment.alone != nil
        }
    }

    private func many(_ thread: UInt32, _ count: Int = window) -> [UInt32] { Array(repeating: thread, count: count) }

    @Test("A thread that sends all requests is alone after as many as a window has")
    func alone() {
        var assignment = CoreAssignment()
        let found = serve(&assignment, many(7, 100))
        #expect(found.firstIndex(of: true) == Self.window - 1)
        #expect(found.lastIndex(of: false) == Self.window - 2)
        #expect(assignment.alone?.client == 7)
    }

    @Test(
        "Threads that alternate are not alone, nor is a thread of another PID namespace",
        arguments: [[7, 8], [7, 7, 8], [.max]] as [[UInt32]])
    func notAlone(threads: [UInt32]) {
        var assignment = CoreAssignment()
        #expect(!serve(&assignment, (0..<600).map { threads[$0 % threads.count] }).contains(true))
    }

    @Test("Long requests are served faster by several workers")
    func slow() {
        var assignment = CoreAssignment()
        #expect(!serve(&assignment, many(7, 200), duration: Self.slow).contains(true))
        // With long requests, a thread that was alone no longer is.
        assignment = CoreAssignment()
        #expect(serve(&assignment, many(7)).last == true)
        #expect(serve(&assignment, many(7, 2 * Self.window), duration: Self.slow).last == false)
    }

    @Test("A thread that waits for the disk is served by one worker all the same")
    func synchronizing() {
        var assignment = CoreAssignment()
        let found = (1...100).map { number in
            serve(&assignment, [7], duration: number % 4 == 3 ? nil : Self.quick).last
        }
        #expect(found.firstIndex(of: true) == Self.window - 1)
        #expect(found.last == true)
    }

    @Test("Up to four of a window's requests may come from others", arguments: [(4, true), (5, false)])
    func others(count: Int, remains: Bool) {
        for other in [8, .max] as [UInt32] {
            var assignment = CoreAssignment()
            #expect(serve(&assignment, many(7)).last == true)
            for _ in 0..<3 {
                let found = serve(&assignment, many(other, count) + many(7, Self.window - count - 1))
                #expect(found.last == true)
                #expect(serve(&assignment, [7]).last == remains)
                if !remains { break }
            }
        }
    }

    @Test("Another worker's answers change nothing, and its request may be the single worker's last one")
    func otherWorker() {
        var assignment = CoreAssignment()
        _ = serve(&assignment, many(7))
        for _ in 0..<100 {
            assignment.received(from: 8, isReadAhead: false, at: 0, mayPoll: true)
            let hasBegun = assignment.served(by: 2, duration: 1000 * Self.slow)
            #expect(!hasBegun)
            #expect(assignment.alone?.worker == 1)
        }
        #expect(serve(&assignment, [7]).last == false)
        // But the other worker's long requests have not counted.
        #expect(serve(&assignment, many(7)).last == true)
    }

    @Test("After an end the same program is served alone again, because it may have changed cores only")
    func again() {
        var assignment = CoreAssignment()
        _ = serve(&assignment, many(7))
        assignment.endAlone()
        #expect(assignment.alone == nil)
        #expect(serve(&assignment, [7]).last == true)
    }

    @Test("The single worker waits as the measurements say")
    func placement() {
        var assignment = CoreAssignment()
        _ = serve(&assignment, many(7))
        var time = 0
        let polled = (0..<10_000).count { _ in
            time += assignment.alone?.placement == .polling ? 10_000 : 20_000
            assignment.received(from: 7, isReadAhead: false, at: time, mayPoll: true)
            return assignment.alone?.placement == .polling
        }
        #expect(polled > 9_000)
        assignment.received(from: 7, isReadAhead: false, at: time, mayPoll: false)
        #expect(assignment.alone?.placement == .clientCore)
    }
}
