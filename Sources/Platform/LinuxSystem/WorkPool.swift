/// Work shared by several threads. The newest item runs first, so a tree is walked in depth and few items are queued.
/// Any thread.
package final class WorkPool<Work: Sendable>: Sendable {
    private struct State {
        var waiting: [Work] = []
        /// The number of threads with an item. The run ends if this is 0 and the queue is empty.
        var working = 0
        /// The number of threads that have not ended.
        var running = 0
        var isStopped = false
    }

    /// The largest queue. If it is full, the caller does the work itself.
    private static var capacity: Int { 64 }

    private let state = Monitor(State())

    package init() {}

    /// Queues `work`. Returns false if the queue is full.
    package func offer(_ work: Work) -> Bool {
        let accepted = state.access { state in
            guard state.waiting.count < Self.capacity else { return false }
            state.waiting.append(work)
            return true
        }
        if accepted { state.update { _ in } }
        return accepted
    }

    /// Drops all queued work. Running items end normally.
    package func stop() { state.update { $0.isStopped = true } }

    /// Runs `first` and all work offered meanwhile. Returns when all is done.
    /// - Parameters:
    ///   - bodies: each one runs on a thread of its own.
    ///   - whileWaiting: called on this thread, several times a second.
    /// - Throws: pthread_create(3)'s error if no thread can be started.
    package func run(_ first: Work, _ bodies: [@Sendable (Work) -> Void], whileWaiting: () -> Void) throws(StoreError) {
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
                // Fewer threads do the same work.
                state.update { $0.running -= 1 }
                refusal = error
            }
        }
        if let refusal, threads.isEmpty { throw refusal }
        while state.wait(until: .now + .milliseconds(200), for: { $0.running == 0 ? () : nil }) == nil {
            whileWaiting()
        }
        for thread in threads { thread.join() }
    }

    private func work(_ body: (Work) -> Void) {
        while let work = nextWork() {
            body(work)
            state.update { $0.working -= 1 }
        }
        state.update { $0.running -= 1 }
    }

    private func nextWork() -> Work? {
        state.next { state in
            if !state.isStopped, let work = state.waiting.popLast() {
                state.working += 1
                return .item(work)
            }
            return state.isStopped || state.working == 0 ? .end : .wait
        }
    }
}
