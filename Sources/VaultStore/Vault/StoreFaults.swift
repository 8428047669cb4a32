package import LinuxSystem
internal import Synchronization

/// The parts of a store that do not work at the moment, and the data that it has lost: for status, the logger and the end of
/// the mount. Never waits for the store. Any thread.
package final class StoreFaults: Sendable {
    /// A part of the store. It has at most one fault at a time.
    package enum Part: Hashable, Sendable {
        /// The log itself.
        case log
        /// Putting the log's entries in place.
        case checkpoint
        /// Putting the changes of the file with this id in place.
        case placing(UInt64)
        /// Syncing the file with this token.
        case syncing(UInt64)
        /// Syncing names and attributes.
        case names
        /// The log that was found at the mount.
        case foundLog
        /// The right to write the vault.
        case writerLock
    }

    private struct State {
        var faults: [Part: String] = [:]
        var lostChunks: UInt64 = 0
    }

    /// Number of faults that are listed.
    private static let mostListed = 10

    private let state = Mutex(State())
    private let onFault = Observer<String>()
    /// Called with chunks whose acknowledged content is lost.
    package let onLoss = Observer<LostChunks>()

    package init() {}

    /// Adds the fault that a part does not work. A new fault is logged once.
    func add(_ part: Part, _ text: String) {
        let isNew = state.withLock { $0.faults.updateValue(text, forKey: part) == nil }
        if isNew { onFault.notify(text) }
    }

    /// Removes the fault of a part that works again.
    func clear(_ part: Part) { state.withLock { _ = $0.faults.removeValue(forKey: part) } }

    /// Adds chunks whose acknowledged content is lost. Each fsync of the file's handles fails once.
    func add(_ loss: LostChunks) {
        state.withLock { $0.lostChunks += UInt64(loss.chunks.count) }
        loss.file.syncs.report()
        onLoss.notify(loss)
    }

    /// Calls `log` with the current faults and later ones, a line each.
    func report(to log: @escaping @Sendable (String) -> Void) {
        onFault.set(log)
        for text in state.withLock({ Array($0.faults.values) }) { log(text) }
    }

    /// One line of text for each fault.
    package var texts: [String] {
        let (all, lost) = state.withLock { (Array($0.faults.values), $0.lostChunks) }
        let rest = all.count - Self.mostListed
        return all.sorted().prefix(Self.mostListed) + (rest > 0 ? ["\(rest) more files have such problems"] : [])
            + (lost > 0
                ? ["\(lost == 1 ? "a chunk" : "\(lost) chunks") of written data was lost: reading it is an error"] : [])
    }

    /// True if data that was written since the store was opened is not durable, or lost.
    package var isDataMissing: Bool {
        state.withLock { $0.lostChunks > 0 || $0.faults.keys.contains { $0 != .foundLog } }
    }
}
