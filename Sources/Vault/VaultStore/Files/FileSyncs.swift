internal import LinuxSystem
package import Synchronization

/// The number of writes to a backing file, and of the durable ones (FileFormat: Store-9). Any thread.
package struct FileSyncs: ~Copyable, Sendable {
    struct Synced {
        /// Number of durable writes to the backing file.
        var writes: UInt64 = 0
        /// Number of failed syncs whose data was written again.
        var handledFailures = 0
        /// The backing file's ctime, in nanoseconds, when its attributes were durable. Nil if unknown.
        var changed: UInt64?
    }

    /// Number of completed writes to the backing file.
    let writes: Atomic<UInt64>
    /// Held during a sync, so that a second caller returns only when it is over.
    let synced = Mutex(Synced())
    /// Number of failed syncs, also in checkpoints. The kernel may have dropped what it could not write, but returns
    /// the error only once, so another sync proves nothing.
    let failures = Atomic<Int>(0)
    /// The bytes of the last written header. Nil before the first. Held while a header is written.
    let writtenHeader = Mutex<[UInt8]?>(nil)
    /// True if chunks were lost with the log since the file was opened.
    let hasLostChunks = Atomic<Bool>(false)
    /// Number of failures to make written data durable. Each handle reports a new one.
    package let reports = Atomic<Int>(0)

    init(hasUnknownWrites: Bool) { writes = Atomic(hasUnknownWrites ? 1 : 0) }

    /// True after a failed sync, until its data was written again.
    var isDoubtful: Bool { synced.withLock { $0.handledFailures != failures.load(ordering: .acquiring) } }

    /// Counts a completed write. The next sync covers it.
    func countWrite() { writes.add(1, ordering: .acquiringAndReleasing) }

    /// Writes the last header again, which a failed sync may have dropped. Takes only a leaf lock, and needs no key.
    func rewriteHeader(_ writer: Descriptor) throws(StoreError) {
        try writtenHeader.withLock { (written) throws(StoreError) in
            if let written { try writer.write(written, at: 0) }
        }
    }

    /// Makes each handle's next fsync fail.
    func report() { reports.add(1, ordering: .acquiringAndReleasing) }
}
