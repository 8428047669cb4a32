import Testing

@testable import FuseSession

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

    @Test("A program that computes for longer than a request takes is not polled for")
    func slowProgram() {
        var program = Program(clientCore: 1_020_000, polling: 1_000_000)
        #expect(program.polled(Self.cycle) <= Self.attempt)
    }
}
