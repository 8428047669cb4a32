internal import Synchronization

/// Counts the changes of one file's chunks. Odd while a writer is active. A reader that sees the same even value before
/// its `pread` and after it has read current data. Any thread reads it. Only the file's writer changes it.
package final class ChangeCounter: Sendable {
    private let counter = Atomic<UInt64>(0)

    package init() {}

    package var value: UInt64 { counter.load(ordering: .sequentiallyConsistent) }

    /// Called under the file's write lock.
    package func beginChange() { counter.add(1, ordering: .sequentiallyConsistent) }
    package func endChange() { counter.add(1, ordering: .sequentiallyConsistent) }

    package static func isChanging(_ value: UInt64) -> Bool { value & 1 == 1 }
}
