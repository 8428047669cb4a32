internal import Synchronization

/// A set of objects that a lock or an unlock goes through. Any thread.
final class ObjectSet<Object: AnyObject & Sendable>: Sendable {
    private let state = Mutex<[ObjectIdentifier: Object]>([:])

    func insert(_ object: Object) {
        state.withLock { $0[ObjectIdentifier(object)] = object }
    }

    func remove(_ object: Object) {
        _ = state.withLock { $0.removeValue(forKey: ObjectIdentifier(object)) }
    }

    func removeAll() -> [Object] {
        state.withLock { state in
            defer { state = [:] }
            return Array(state.values)
        }
    }

    var all: [Object] { state.withLock { Array($0.values) } }
}
