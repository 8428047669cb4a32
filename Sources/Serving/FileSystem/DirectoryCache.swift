internal import LinuxSystem
internal import Synchronization

/// A small LRU cache of open directories, so that nodes need no descriptors. Any thread.
package final class DirectoryCache<Item: AnyObject & Sendable, Directory: Sendable>: Sendable {
    private struct Entry {
        var directory: Directory
        /// Keeps the node alive, so that its identifier is not reused.
        var node: Item
        var used: UInt64
    }

    private struct State {
        var entries: [ObjectIdentifier: Entry] = [:]
        var clock: UInt64 = 0
    }

    private let state = Mutex(State())
    private let capacity = shareOfOpenFiles(atMost: 512)

    package init() {}

    package func find(_ node: Item) -> Directory? {
        state.withLock { state in
            guard let index = state.entries.index(forKey: ObjectIdentifier(node)) else { return nil }
            state.clock += 1
            state.entries.values[index].used = state.clock
            return state.entries.values[index].directory
        }
    }

    package func insert(_ directory: Directory, for node: Item) {
        state.withLock { state in
            state.clock += 1
            state.entries[ObjectIdentifier(node)] = Entry(directory: directory, node: node, used: state.clock)
            if state.entries.count > capacity { evictOlderHalf(&state) }
        }
    }

    package func remove(_ node: Item) { _ = state.withLock { $0.entries.removeValue(forKey: ObjectIdentifier(node)) } }

    package func removeAll() -> [Directory] {
        state.withLock { state in
            defer { state.entries = [:] }
            return state.entries.values.map(\.directory)
        }
    }

    /// Removes half of the entries at a time, because finding the oldest then costs little for each insertion.
    private func evictOlderHalf(_ state: inout State) {
        let middle = state.entries.values.map(\.used).sorted()[state.entries.count / 2]
        state.entries = state.entries.filter { $0.value.used >= middle }
    }
}
