import LinuxSystem
import Synchronization
import Testing

@testable import Locking

/// Tasks for which a lock waits only a limited time.
@Suite(.timeLimit(.minutes(60))) struct StoreTaskTests {
    private final class Secret: Sendable {}

    private struct Trace: Sendable {
        weak var secret: Secret?
    }

    /// Weak references to the secret captured by a task, and to its result.
    private final class Traces: Sendable {
        let taken = Mutex(Trace())
        let returned = Mutex(Trace())
        var count: Int {
            (taken.withLock { $0.secret } == nil ? 0 : 1) + (returned.withLock { $0.secret } == nil ? 0 : 1)
        }
    }

    private let isHeld = Monitor(true)
    private let traces = Traces()
    /// The number of secrets alive when the task ends.
    private let left = Monitor<Int?>(nil)

    private func begin() -> StoreTask<Secret> {
        let taken = Secret()
        traces.taken.withLock { $0.secret = taken }
        return StoreTask(Monitor(LockController.Queue())) { [isHeld, traces] in
            isHeld.wait { $0 ? nil : () }
            let returned = withExtendedLifetime(taken) { Secret() }
            traces.returned.withLock { $0.secret = returned }
            return returned
        } whenEnded: { [left, traces] in
            left.update { $0 = traces.count }
        }
    }

    @Test("A cancelled task keeps nothing any more when it reports its end")
    func abandoned() throws {
        let task = begin()
        #expect(task.wait(until: .now + .milliseconds(1)) == nil)
        task.abandon()
        #expect(traces.count == 1)
        isHeld.update { $0 = false }
        #expect(try left.awaited() == 0)
    }

    @Test("A completed task returns its result, and keeps nothing that the result was made from")
    func awaited() throws {
        let task = begin()
        isHeld.update { $0 = false }
        #expect(try left.awaited() == 1)
        #expect(task.wait(until: .now + .seconds(20)) != nil)
    }
}
