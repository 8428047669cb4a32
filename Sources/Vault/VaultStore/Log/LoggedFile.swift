internal import LinuxSystem

/// The log's view of a file with entries. Any thread, without the file's write lock, which the caller may hold.
protocol LoggedFile: AnyObject, Sendable {
    /// Bytes of memory for the index of the file's entries.
    var indexMemory: Int { get }

    /// Writes changes to the backing file, but keeps its times. They are durable in the log, which then syncs the file.
    func putInPlace(_ changes: LoggedChanges, _ writer: Descriptor, from log: Descriptor) throws(StoreError)

    /// Drops changes that are durably in place.
    func drop(through sequence: UInt64)

    /// Takes over the changes from a new log, which has all entries that are not in place.
    func relocate(_ changes: LoggedChanges, to log: Descriptor)

    /// Drops the changes if the file has no name and nobody has it open. Returns true if so.
    func abandonIfRemoved() -> Bool

    /// Records the loss of these chunks' acknowledged content. Called without a lock of the log.
    func lose(_ chunks: Range<UInt64>)

    /// Counts a failed sync of the backing file.
    func countFailedSync()
}
