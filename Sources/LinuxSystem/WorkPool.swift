internal import Glibc

/// Work that threads share, the newest first, so that a tree is gone through in depth and little of it waits. Any thread.
package final class WorkPool<Work: Sendable>: Sendable {
    private struct State {
        var waiting: [Work] = []
        /// How many threads are at work; it ends when none is and nothing waits.
        var working = 0
        var running = 0
        var isStopped = false
    }

    /// How much may wait: what is more, its finder does itself.
    private static var capacity: Int { 64 }

    private let state = Monitor(State())

    package init() {}

    /// False where enough waits.
    package func offer(_ work: Work) -> Bool {
        let accepted = state.access { state in
            guard state.waiting.count < Self.capacity else { return false }
            state.waiting.append(work)
            return true
        }
        if accepted { state.update { _ in } }
        return accepted
    }

    /// Lets what waits be.
    package func stop() {
        state.update { $0.isStopped = true }
    }

    /// Does `first` and all that comes of it, and returns when nothing is left.
    /// - Parameters:
    ///   - bodies: one thread each.
    ///   - whileWaiting: called by this thread, several times a second.
    package func run(
        _ first: Work, _ bodies: [@Sendable (Work) -> Void], whileWaiting: () -> Void
    ) throws(StoreError) {
        state.update { state in
            state.waiting = [first]
            state.running = bodies.count
        }
        var threads: [BackgroundThread] = []
        var refusal: StoreError?
        for body in bodies {
            do throws(StoreError) {
                threads.append(try BackgroundThread { [self] in work(body) })
            } catch {
                // Fewer do as well.
                state.update { $0.running -= 1 }
                refusal = error
            }
        }
        if let refusal, threads.isEmpty { throw refusal }
        while !isDone() { whileWaiting() }
        for thread in threads { thread.join() }
    }

    private func isDone() -> Bool {
        var deadline = monotonicDeadline(in: 0)
        deadline.tv_nsec += 200_000_000
        if deadline.tv_nsec >= 1_000_000_000 {
            deadline.tv_nsec -= 1_000_000_000
            deadline.tv_sec += 1
        }
        return state.wait(until: deadline) { $0.running == 0 ? true : nil } ?? false
    }

    private func work(_ body: (Work) -> Void) {
        while let work = take() {
            body(work)
            state.update { $0.working -= 1 }
        }
        state.update { $0.running -= 1 }
    }

    private func take() -> Work? {
        state.wait { state -> Work?? in
            if !state.isStopped, let work = state.waiting.popLast() {
                state.working += 1
                return work
            }
            return state.isStopped || state.working == 0 ? .some(nil) : nil
        }
    }
}
