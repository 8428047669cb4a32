internal import LinuxSystem
package import Synchronization

/// Totals since the mount, for `status` and for tests that check what was read. Any thread.
package final class Counters: Sendable {
    package let cacheHits = Atomic<UInt64>(0)
    package let cacheMisses = Atomic<UInt64>(0)
    package let aesBlocksDecrypted = Atomic<UInt64>(0)
    package let ciphertextBytesRead = Atomic<UInt64>(0)
    package let ciphertextBytesWritten = Atomic<UInt64>(0)
    /// Nanoseconds in encryption and decryption with authentication, and in reads and writes of backing files.
    package let cryptoTime = Atomic<UInt64>(0)
    package let storeTime = Atomic<UInt64>(0)
    package let damagedReads = Atomic<UInt64>(0)
    package let hiddenNames = Atomic<UInt64>(0)
    package let filesSealed = Atomic<UInt64>(0)
    /// Files without a header and directories without a record that were completed as empty ones.
    package let completedObjects = Atomic<UInt64>(0)
    /// Requests refused because of a lock.
    package let refusedRequests = Atomic<UInt64>(0)
    /// Bytes of dirty mapped pages that the kernel wrote back during locks.
    package let writtenBackBytes = Atomic<UInt64>(0)

    package init() {}
}

extension Atomic<UInt64> {
    /// Adds without ordering, which is enough for statistics.
    @inline(__always)
    package func count(_ amount: Int = 1) {
        add(UInt64(amount), ordering: .relaxed)
    }

    /// Adds the nanoseconds that `body` takes.
    @inline(__always)
    package func time<Result, Failure: Error>(
        _ body: () throws(Failure) -> Result
    ) throws(Failure) -> Result {
        let start = monotonicNanoseconds()
        defer { count(monotonicNanoseconds() - start) }
        return try body()
    }

    package var total: UInt64 {
        load(ordering: .relaxed)
    }
}
