internal import LinuxSystem
package import Synchronization

/// Which writes to a backing file are durable (FileFormat: Store-9). Any thread.
package struct FileSyncs: ~Copyable, Sendable {
    struct Synced {
        /// Number of writes to the backing file that are durable.
        var writes: UInt64 = 0
        /// Number of failed syncs since which the data was written again.
        var handledFailures = 0
    }

    /// Counts the writes to the backing file. Each is counted when it has been made.
    let writes: Atomic<UInt64>
    /// Held during a sync, so that nobody returns before it is over.
    let synced = Mutex(Synced())
    /// Number of syncs that have failed, also those of a checkpoint. The kernel may have dropped what it could not write, and
    /// returns the error only once, so another sync proves nothing.
    let failures = Atomic<Int>(0)
    /// The header that was written last, as bytes. Nil if none was. Held while a header is written.
    let writtenHeader = Mutex<[UInt8]?>(nil)
    /// True if chunks were lost with the log since the file was opened.
    let hasLostChunks = Atomic<Bool>(false)
    /// Number of times that written data could not be made durable. Each handle reports a new one.
    package let reports = Atomic<Int>(0)

    init(hasUnknownWrites: Bool) { writes = Atomic(hasUnknownWrites ? 1 : 0) }

    /// True if a sync has failed, and what it should have made durable was not written again since.
    var isDoubtful: Bool { synced.withLock { $0.handledFailures != failures.load(ordering: .acquiring) } }

    /// Counts a write, which has been made. The next sync covers it.
    func countWrite() { writes.add(1, ordering: .acquiringAndReleasing) }

    /// Writes the last header again, which a failed sync may have dropped. Needs no key, and no lock that a checkpoint may wait for.
    func rewriteHeader(_ writer: Descriptor) throws(StoreError) {
        try writtenHeader.withLock { (written) throws(StoreError) in
            if let written { try writer.write(written, at: 0) }
        }
    }

    /// Makes each handle's next fsync fail.
    func report() { reports.add(1, ordering: .acquiringAndReleasing) }
}
