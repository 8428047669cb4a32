internal import LinuxSystem

/// Notifications that the kernel must still get. An item stays in `all` until its notification has returned, so a thread that
/// must be sure sends those of `all` itself. A notification may be sent twice. Any thread.
final class DueNotifications<Item: Hashable & Sendable>: Sendable {
    private struct State {
        var waiting: Set<Item> = []
        /// Those that the thread is sending.
        var current: Set<Item> = []
        var isRunning = false
        var isEnding = false
    }

    /// Time that `end` waits for the current notification.
    private static var endTimeout: Duration { .seconds(10) }

    private let state = Monitor(State())
    private let batch: Int

    /// - Parameter batch: number of waiting items from which on the thread sends them.
    init(batch: Int) { self.batch = batch }

    /// Adds an item. Never waits for the kernel.
    func add(_ item: Item) {
        let isBatch = state.access { state in
            guard state.waiting.insert(item).inserted else { return false }
            return state.waiting.count == batch
        }
        if isBatch { state.update { _ in } }
    }

    /// Every item whose notification may not have returned.
    var all: Set<Item> { state.access { $0.waiting.union($0.current) } }

    /// Starts the thread that sends the notifications of whole batches.
    /// - Throws: pthread_create(3)'s error. Then only those who need `all` send them.
    func start(_ send: @escaping @Sendable (Item) -> Void) throws(StoreError) {
        state.access { $0.isRunning = true }
        do throws(StoreError) { try BackgroundThread { [self] in run(send) }.detach() } catch {
            state.access { $0.isRunning = false }
            throw error
        }
    }

    /// Ends the thread, and waits for it. Call while requests are still answered: the kernel may make a notification wait for one.
    func end() {
        state.update { $0.isEnding = true }
        _ = state.wait(until: .now + Self.endTimeout) { $0.isRunning ? nil : () }
    }

    private func run(_ send: (Item) -> Void) {
        while let items = state.next({ state -> Next<Set<Item>> in
            state.current = []
            if state.isEnding { return .end }
            if state.waiting.count < batch { return .wait }
            swap(&state.waiting, &state.current)
            return .item(state.current)
        }) {
            for item in items where !state.access({ $0.isEnding }) { send(item) }
        }
        state.update { $0.isRunning = false }
    }
}
