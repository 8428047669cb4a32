internal import LinuxSystem

/// The log's view of a file with entries. The thread of a checkpoint or of a renewal calls these, with the log's lock
/// `checkpointing`. None takes the file's write lock, which that thread may have. Only `relocate` is called with the
/// log's other two locks, for which requests wait.
protocol LoggedFile: AnyObject, Sendable {
    /// Bytes of memory for the index of the file's entries.
    var indexMemory: Int { get }

    /// Writes changes to the backing file, but keeps its times. They are durable in the log, which then syncs the file.
    func putInPlace(_ changes: LoggedChanges, _ writer: Descriptor, from log: Descriptor) throws(StoreError)

    /// Drops changes that are durably in place.
    func drop(through sequence: UInt64)

    /// Takes over the changes from a new log, which has all entries that are not in place. Called with the locks
    /// `syncing` and `writing`.
    func relocate(_ changes: LoggedChanges, to log: Descriptor)

    /// Drops the changes if the file has no name and nobody has it open. Returns true if so.
    func abandonIfRemoved() -> Bool

    /// Records the loss of these chunks' acknowledged content.
    func lose(_ chunks: Range<UInt64>)

    /// Counts a failed sync of the backing file.
    func countFailedSync()
}
