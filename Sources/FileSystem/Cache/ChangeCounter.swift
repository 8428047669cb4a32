internal import Synchronization

/// Counts the changes of one file's chunks. The value is odd while a writer is at work. A reader that sees the same even
/// value before its `pread` and after it has read current data. Any thread reads, only the file's writer changes it.
package final class ChangeCounter: Sendable {
    private let counter = Atomic<UInt64>(0)

    package init() {}

    package var value: UInt64 { counter.load(ordering: .sequentiallyConsistent) }

    /// Runs `body`, which changes chunks. The caller has the file's write lock.
    package func during<Result, Failure: Error>(_ body: () throws(Failure) -> Result) throws(Failure) -> Result {
        counter.add(1, ordering: .sequentiallyConsistent)
        defer { counter.add(1, ordering: .sequentiallyConsistent) }
        return try body()
    }

    package static func isChanging(_ value: UInt64) -> Bool { value & 1 == 1 }
}
