internal import BackingStore
internal import VaultCrypto
internal import VaultStore

/// What `status` tells of a mount's work: totals since the mount, and what is held now.
package struct Statistics: Codable, Sendable, Equatable {
    /// Chunks served from the block cache, and chunks that had to be read and decrypted.
    package var cacheHits: UInt64
    package var cacheMisses: UInt64
    /// Bytes.
    package var cacheSize: Int
    package var cacheUsed: Int
    package var aesBlocksDecrypted: UInt64
    package var ciphertextBytesRead: UInt64
    package var ciphertextBytesWritten: UInt64
    /// Reads refused because something did not verify.
    package var damagedReads: UInt64
    /// Names and attributes left out because they do not authenticate, each time they were met.
    package var hiddenNames: UInt64
    package var filesSealed: UInt64
    /// Files and directories that the kernel knows.
    package var nodes: Int
    package var keysLocked: Bool
    package var cacheLocked: Bool
}

extension VaultFileSystem {
    /// The totals and what is held, as of now.
    package func statistics() -> Statistics {
        let counters = store.counters
        return Statistics(
            cacheHits: counters.cacheHits.total, cacheMisses: counters.cacheMisses.total,
            cacheSize: store.cache.capacity, cacheUsed: store.cache.usedSize,
            aesBlocksDecrypted: counters.aesBlocksDecrypted.total,
            ciphertextBytesRead: counters.ciphertextBytesRead.total,
            ciphertextBytesWritten: counters.ciphertextBytesWritten.total,
            damagedReads: counters.damagedReads.total, hiddenNames: counters.hiddenNames.total,
            filesSealed: counters.filesSealed.total, nodes: nodes.count,
            keysLocked: SecretMemory.allLocked, cacheLocked: store.cache.isLocked)
    }
}
