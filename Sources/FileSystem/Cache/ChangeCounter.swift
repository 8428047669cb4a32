internal import CLinux
internal import Glibc
internal import Synchronization
internal import SystemPackage
internal import VaultCrypto

/// Counts the changes of one file's chunks: odd while a writer is at work. A reader that sees the same even value
/// before its `pread` and at the end has read what is current. Any thread reads; only the file's writer moves it.
package final class ChangeCounter: Sendable {
    private let counter = Atomic<UInt64>(0)

    package init() {}

    package var value: UInt64 { counter.load(ordering: .sequentiallyConsistent) }

    /// Called under the file's write lock.
    package func beginChange() { counter.add(1, ordering: .sequentiallyConsistent) }
    package func endChange() { counter.add(1, ordering: .sequentiallyConsistent) }

    package static func isChanging(_ value: UInt64) -> Bool { value & 1 == 1 }
}
