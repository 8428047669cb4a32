internal import FileSystem
internal import LinuxSystem
internal import Synchronization
package import VaultFormat

/// The protection class of one directory, one object for all that have the directory open: what is made in it after a
/// change of class is of the new class, whoever makes it. Any thread.
package final class DirectoryClass: Sendable {
    private let current = Atomic<ProtectionClass>(.complete)
    /// Held while the record is read or replaced: who still reads the old record is not to undo a change. No other lock
    /// is taken under it but the key ring's.
    private let record = Mutex<Void>(())

    package init() {}

    /// The class as the record last said; complete, the strictest, before it has been read.
    package var value: ProtectionClass { current.load(ordering: .acquiring) }

    /// Reads or replaces the record by `body`, which returns the class that it then has.
    func update<Result>(
        _ body: () throws(StoreError) -> (ProtectionClass, Result)
    ) throws(StoreError) -> Result {
        try record.withLock { (_) throws(StoreError) -> Result in
            let (protectionClass, result) = try body()
            current.store(protectionClass, ordering: .releasing)
            return result
        }
    }
}
