internal import Synchronization

/// A set of objects. Any thread.
package final class ObjectSet<Object: AnyObject & Sendable>: Sendable {
    private let state = Mutex<[ObjectIdentifier: Object]>([:])

    package init() {}

    package func insert(_ object: Object) {
        state.withLock { $0[ObjectIdentifier(object)] = object }
    }

    package func remove(_ object: Object) {
        _ = state.withLock { $0.removeValue(forKey: ObjectIdentifier(object)) }
    }

    package func removeAll() -> [Object] {
        state.withLock { state in
            defer { state = [:] }
            return Array(state.values)
        }
    }

    package var all: [Object] { state.withLock { Array($0.values) } }
}
