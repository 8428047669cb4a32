internal import LinuxSystem

/// Works on several items, each on its own thread, so a hanging item does not delay the others.
enum ParallelWork {
    /// Returns the results in the order of the items, once all are done.
    static func map<Item: Sendable, Result: Sendable>(
        _ items: [Item], _ body: @escaping @Sendable (Item) -> Result
    ) -> [Result] {
        let results = Monitor([Int: Result]())
        let threads = items.enumerated().compactMap { index, item -> BackgroundThread? in
            let work: @Sendable () -> Void = {
                let result = body(item)
                results.access { $0[index] = result }
            }
            do throws(StoreError) { return try BackgroundThread(work) } catch {
                // Without more threads, work on one item after the other.
                work()
                return nil
            }
        }
        for thread in threads { thread.join() }
        return results.access { results in items.indices.compactMap { results[$0] } }
    }
}
