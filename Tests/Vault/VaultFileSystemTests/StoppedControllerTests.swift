import LinuxSystem
import Testing

@testable import Locking

/// A stopped lock controller while the control socket is still served.
@Suite(.timeLimit(.minutes(60))) struct StoppedControllerTests {
    private static let refusal = UnlockRefusal.failed("the vault is being unmounted")

    @Test("A request after the stop gets an error at once, and nothing of it is kept", arguments: [false, true])
    func asking(isLocked: Bool) throws {
        let setup = try SilentStore(.forget, patience: 20_000)
        if isLocked { try setup.lockWholly() }
        setup.controller.stop()
        let receipt = Monitor<LockReceipt?>(nil)
        let isAnswered = setup.controller.lock(.command) { last, already in receipt.update { $0 = already ? last : nil }
        }
        #expect(isAnswered == isLocked)
        #expect(receipt.access { $0 } == setup.controller.status().lastReceipt)
        #expect(receipt.access { $0 != nil } == isLocked)
        #expect(setup.unlock(setup.key).access { $0 } == .failure(Self.refusal))
        setup.controller.wantSecret()
        try setup.give(1, setup.key)
        #expect(setup.controller.queue.access { $0.jobs.isEmpty })
    }
}
