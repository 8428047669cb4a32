internal import LinuxSystem

/// A file that has entries, as the log sees it. Any thread, without the file's write lock, which the caller may hold.
protocol LoggedFile: AnyObject, Sendable {
    /// Bytes of memory that the index of the file's entries takes.
    var indexMemory: Int { get }

    /// Writes changes that are durable in the log to the backing file. Keeps its times. The log syncs it.
    func putInPlace(_ changes: LoggedChanges, _ writer: Descriptor, from log: Descriptor) throws(StoreError)

    /// Drops changes that are in place, durably.
    func drop(through sequence: UInt64)

    /// Takes over the changes in a new log, which has all that are not in place.
    func relocate(_ changes: LoggedChanges, to log: Descriptor)

    /// Returns true if the file has no name and nobody has it open. Its changes are then dropped.
    func abandonIfRemoved() -> Bool

    /// Acknowledged content of these chunks is lost. Called without a lock of the log.
    func lose(_ chunks: Range<UInt64>)

    /// A sync of the backing file has failed.
    func countFailedSync()
}
