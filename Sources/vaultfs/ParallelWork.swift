internal import LinuxSystem
internal import Synchronization
internal import VaultStore

/// Works on several items, each on its own thread, so that one that hangs delays no other.
enum ParallelWork {
    /// Returns the results in the order of the items, once all are done.
    static func map<Item: Sendable, Result: Sendable>(
        _ items: [Item], _ body: @escaping @Sendable (Item) -> Result
    ) -> [Result] {
        let results = Shared([Int: Result]())
        let threads = items.enumerated().compactMap { index, item -> BackgroundThread? in
            let work: @Sendable () -> Void = {
                let result = body(item)
                results.withLock { $0[index] = result }
            }
            do throws(StoreError) {
                return try BackgroundThread(work)
            } catch {
                // No more threads: one item after the other.
                work()
                return nil
            }
        }
        for thread in threads { thread.join() }
        return results.withLock { results in items.indices.compactMap { results[$0] } }
    }

    /// A `Mutex` that closures can share.
    final class Shared<Value: Sendable>: Sendable {
        private let value: Mutex<Value>

        init(_ value: Value) { self.value = Mutex(value) }

        func withLock<Result: Sendable>(_ body: (inout sending Value) -> sending Result) -> sending Result {
            value.withLock(body)
        }
    }
}
