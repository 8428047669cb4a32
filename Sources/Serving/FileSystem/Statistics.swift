internal import LinuxSystem
package import Synchronization
internal import VaultCrypto

/// The totals since the mount, for `status` and for tests that count reads. Any thread.
package final class Counters: Sendable {
    package let cacheHits = Atomic<UInt64>(0)
    package let cacheMisses = Atomic<UInt64>(0)
    package let aesBlocksDecrypted = Atomic<UInt64>(0)
    package let ciphertextBytesRead = Atomic<UInt64>(0)
    package let ciphertextBytesWritten = Atomic<UInt64>(0)
    /// The nanoseconds in encryption and decryption with authentication, and in reads and writes of backing files.
    package let cryptoTime = Atomic<UInt64>(0)
    package let storeTime = Atomic<UInt64>(0)
    package let damagedReads = Atomic<UInt64>(0)
    package let hiddenNames = Atomic<UInt64>(0)
    package let filesSealed = Atomic<UInt64>(0)
    /// The number of files without a header, and of directories without a record, completed as empty ones.
    package let completedObjects = Atomic<UInt64>(0)
    /// The requests refused because of a lock.
    package let refusedRequests = Atomic<UInt64>(0)
    /// The bytes of dirty mapped pages written back by the kernel during locks.
    package let writtenBackBytes = Atomic<UInt64>(0)

    package init() {}
}

extension Atomic<UInt64> {
    /// Adds without ordering, which is enough for statistics.
    @inline(__always)
    package func count(_ amount: Int = 1) { add(UInt64(amount), ordering: .relaxed) }

    /// Adds the nanoseconds taken by `body`.
    /// - Throws: the error of `body`.
    @inline(__always)
    package func time<Result, Failure: Error>(_ body: () throws(Failure) -> Result) throws(Failure) -> Result {
        let start = monotonicNanoseconds()
        defer { count(monotonicNanoseconds() - start) }
        return try body()
    }

    package var total: UInt64 { load(ordering: .relaxed) }
}

/// The work of a mount in `status`: totals since the mount, and current values. Every figure is optional, because the
/// daemon may be of another version.
package struct Statistics: Codable, Sendable, Equatable {
    /// The chunks returned from the block cache, and the chunks read and decrypted.
    package var cacheHits: UInt64?
    package var cacheMisses: UInt64?
    /// Bytes.
    package var cacheSize: Int?
    package var cacheUsed: Int?
    package var aesBlocksDecrypted, ciphertextBytesRead, ciphertextBytesWritten: UInt64?
    /// The microseconds in encryption and decryption with authentication, and in reads and writes of backing files. The
    /// sum over all threads.
    package var cryptoMicroseconds: UInt64?
    package var storeMicroseconds: UInt64?
    /// The reads refused because authentication failed.
    package var damagedReads: UInt64?
    /// The names and attributes hidden because they do not authenticate. Counted each time.
    package var hiddenNames: UInt64?
    package var filesSealed: UInt64?
    /// The files without a header, and the directories without a record, completed as empty ones after an unclean end.
    package var completedObjects: UInt64?
    /// True until the walk that completes them is done.
    package var isCompleting: Bool?
    /// The files and directories known to the kernel.
    package var nodes: Int?
    /// The statistics of the redo log. Nil for a vault that cannot be written.
    package var log: LogStatistics?
    /// The existing conflict copies of sync clients that programs have seen. Nil for a view.
    package var conflictCopies: Int?
    package var keysNeverSwapped, cacheNeverSwapped: Bool?

    package init(
        _ counters: Counters, cache: BlockCache, nodes: Int, isCompleting: Bool = false, log: LogStatistics? = nil
    ) {
        cacheHits = counters.cacheHits.total
        cacheMisses = counters.cacheMisses.total
        (cacheSize, cacheUsed, cacheNeverSwapped) = (cache.capacity, cache.usedSize, cache.isLocked)
        aesBlocksDecrypted = counters.aesBlocksDecrypted.total
        ciphertextBytesRead = counters.ciphertextBytesRead.total
        ciphertextBytesWritten = counters.ciphertextBytesWritten.total
        cryptoMicroseconds = counters.cryptoTime.total / 1000
        storeMicroseconds = counters.storeTime.total / 1000
        damagedReads = counters.damagedReads.total
        hiddenNames = counters.hiddenNames.total
        filesSealed = counters.filesSealed.total
        completedObjects = counters.completedObjects.total
        self.isCompleting = isCompleting
        self.nodes = nodes
        self.log = log
        keysNeverSwapped = SecretMemory.allLocked
    }
}

/// The redo log of a vault in `status`. Sizes are in bytes.
package struct LogStatistics: Codable, Sendable, Equatable {
    /// The maximum size, and the part used by changes not yet in place.
    package var size, used: UInt64?
    /// The estimated memory of the index that finds changes in the log. At most a 40th of the log's size.
    package var indexMemory: Int?
    /// The number of checkpoints since the mount, by their reason.
    package var checkpoints: [String: UInt64]?

    package init(size: UInt64, used: UInt64, indexMemory: Int, checkpoints: [String: UInt64]) {
        (self.size, self.used, self.indexMemory) = (size, used, indexMemory)
        self.checkpoints = checkpoints
    }
}

/// The kernel's requests in `status`: totals since the mount.
package struct RequestStatistics: Codable, Sendable, Equatable {
    package let served: UInt64?
    /// The number of times that a single worker began to serve a single program.
    package let clientsFollowed: UInt64?

    package init(served: UInt64, clientsFollowed: UInt64) {
        (self.served, self.clientsFollowed) = (served, clientsFollowed)
    }
}
