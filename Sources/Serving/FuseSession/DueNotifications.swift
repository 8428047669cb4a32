internal import LinuxSystem

/// Notifications about inodes that the kernel must still get. One stays in `all` until it has returned, so a thread that must be sure
/// sends those of `all` itself, and a notification may be sent twice. There is one for each inode at most, because those of one inode
/// are joined: the kernel may hold a notification up while others come. Any thread.
final class DueNotifications: Sendable {
    /// Node ids, each with the range of bytes in the file that the notification is about. Empty if it is about no content.
    typealias Items = [UInt64: Range<Int>]

    private struct State {
        var waiting: Items = [:]
        /// Those that the thread is sending.
        var current: Items = [:]
        var isRunning = false
        var isEnding = false
    }

    /// Time that `end` waits for the current notification.
    private static let endTimeout = Duration.seconds(10)

    private let state = Monitor(State())
    private let batch: Int

    /// - Parameter batch: number of waiting items from which on the thread sends them.
    init(batch: Int) { self.batch = batch }

    /// Adds a notification. Never waits for the kernel.
    func add(_ inode: UInt64, _ range: Range<Int> = 0..<0) {
        let isBatch = state.access { state in
            let known = state.waiting[inode]
            state.waiting[inode] = Self.join(known, range)
            return known == nil && state.waiting.count == batch
        }
        if isBatch { state.update { _ in } }
    }

    /// Every notification that may not have returned.
    var all: Items { state.access { $0.waiting.merging($0.current, uniquingKeysWith: Self.join) } }

    private static func join(_ first: Range<Int>?, _ second: Range<Int>) -> Range<Int> {
        guard let first, !first.isEmpty else { return second }
        guard !second.isEmpty else { return first }
        return min(first.lowerBound, second.lowerBound)..<max(first.upperBound, second.upperBound)
    }

    /// Starts the thread that sends the notifications of whole batches.
    /// - Throws: pthread_create(3)'s error. Then only those who need `all` send them.
    func start(_ send: @escaping @Sendable (UInt64, Range<Int>) -> Void) throws(StoreError) {
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

    private func run(_ send: (UInt64, Range<Int>) -> Void) {
        while let items = state.next({ state -> Next<Items> in
            state.current = [:]
            if state.isEnding { return .end }
            if state.waiting.count < batch { return .wait }
            swap(&state.waiting, &state.current)
            return .item(state.current)
        }) {
            for (inode, range) in items where !state.access({ $0.isEnding }) { send(inode, range) }
        }
        state.update { $0.isRunning = false }
    }
}
