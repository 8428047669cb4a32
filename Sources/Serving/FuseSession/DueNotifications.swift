internal import LinuxSystem

/// Due notifications to the kernel about inodes. One stays in `all` until its call has returned, so a thread that must
/// be sure sends those of `all` itself, and some may be sent twice. An inode has at most one, because later ones are
/// joined to it while the kernel delays the call. Any thread.
final class DueNotifications: Sendable {
    /// The node ids, each with the affected range of bytes in the file. Empty if the content is unaffected.
    typealias Items = [UInt64: Range<Int>]

    private struct State {
        var waiting: Items = [:]
        /// The notifications being sent by the thread.
        var current: Items = [:]
        var isRunning = false
        var isEnding = false
    }

    /// The time for which `end` waits for the current notification.
    private static let endTimeout = Duration.seconds(10)

    private let state = Monitor(State())
    private let batch: Int

    /// - Parameter batch: the number of waiting items at which the thread sends them.
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

    /// Every notification whose call may not have returned.
    var all: Items { state.access { $0.waiting.merging($0.current, uniquingKeysWith: Self.join) } }

    private static func join(_ first: Range<Int>?, _ second: Range<Int>) -> Range<Int> {
        guard let first, !first.isEmpty else { return second }
        guard !second.isEmpty else { return first }
        return min(first.lowerBound, second.lowerBound)..<max(first.upperBound, second.upperBound)
    }

    /// Starts the thread, which sends the notifications in whole batches.
    /// - Throws: pthread_create(3)'s error. Then only users of `all` send them.
    func start(_ send: @escaping @Sendable (UInt64, Range<Int>) -> Void) throws(StoreError) {
        state.access { $0.isRunning = true }
        do throws(StoreError) { try BackgroundThread { [self] in run(send) }.detach() } catch {
            state.access { $0.isRunning = false }
            throw error
        }
    }

    /// Ends the thread, and waits for it. Call it while requests are answered, because a notification may wait for one.
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
