internal import LinuxSystem
internal import Synchronization

/// What does not work in a store at the moment, and what it has lost, for status, the log and the end of the mount. Never
/// waits for the store. Any thread.
package final class StoreFaults: Sendable {
    /// A part of the store. It has at most one fault at a time.
    package enum Part: Hashable, Sendable {
        /// The log itself.
        case log
        /// Putting the log's entries in place.
        case checkpoint
        /// Putting the changes of the file with this id in place.
        case placing(UInt64)
        /// Syncing the file with this id.
        case syncing(UInt64)
        /// The log that was found at the mount.
        case foundLog
    }

    private final class Observer: Sendable {
        let report: @Sendable (String) -> Void
        let lose: @Sendable (LostChunks) -> Void

        init(report: @escaping @Sendable (String) -> Void, lose: @escaping @Sendable (LostChunks) -> Void) {
            (self.report, self.lose) = (report, lose)
        }
    }

    private struct State {
        var faults: [Part: String] = [:]
        var lostChunks: UInt64 = 0
        var observer: Observer?
    }

    /// Number of faults that are listed.
    private static let mostListed = 10

    private let state = Mutex(State())

    package init() {}

    /// Notes that a part does not work. A new fault is logged once.
    func note(_ part: Part, _ text: String) {
        let observer = state.withLock { state -> Observer? in
            let isNew = state.faults.updateValue(text, forKey: part) == nil
            return isNew ? state.observer : nil
        }
        observer?.report(text)
    }

    /// Notes that a part works again.
    func clear(_ part: Part) { state.withLock { _ = $0.faults.removeValue(forKey: part) } }

    /// Notes chunks whose acknowledged content is lost. Each fsync of the file's handles fails once.
    func note(_ loss: LostChunks) {
        let observer = state.withLock { state in
            state.lostChunks += UInt64(loss.chunks.count)
            return state.observer
        }
        loss.file.failedSynchronizations.add(1, ordering: .acquiringAndReleasing)
        observer?.lose(loss)
    }

    /// Calls `report` with the faults of now, and both with later ones.
    package func observe(
        report: @escaping @Sendable (String) -> Void, lose: @escaping @Sendable (LostChunks) -> Void
    ) {
        let now = state.withLock { state in
            state.observer = Observer(report: report, lose: lose)
            return Array(state.faults.values)
        }
        for text in now { report(text) }
    }

    /// One line of text for each fault.
    package var texts: [String] {
        let (all, lost) = state.withLock { (Array($0.faults.values), $0.lostChunks) }
        let rest = all.count - Self.mostListed
        return all.sorted().prefix(Self.mostListed) + (rest > 0 ? ["\(rest) more files have such problems"] : [])
            + (lost > 0 ? ["\(lost) chunks of written data were lost with vaultfs.log: reading them is an error"] : [])
    }

    /// True if data that was written since the store was opened is not durable, or lost.
    package var isDataMissing: Bool {
        state.withLock { $0.lostChunks > 0 || $0.faults.keys.contains { $0 != .foundLog } }
    }
}
