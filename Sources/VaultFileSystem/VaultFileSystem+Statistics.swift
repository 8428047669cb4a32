package import FileSystem
internal import VaultCrypto
internal import VaultStore

extension VaultFileSystem {
    /// Current totals and values.
    package func statistics() -> Statistics {
        let counters = store.counters
        return Statistics(
            cacheHits: counters.cacheHits.total, cacheMisses: counters.cacheMisses.total,
            cacheSize: store.cache.capacity, cacheUsed: store.cache.usedSize,
            aesBlocksDecrypted: counters.aesBlocksDecrypted.total,
            ciphertextBytesRead: counters.ciphertextBytesRead.total,
            ciphertextBytesWritten: counters.ciphertextBytesWritten.total,
            cryptoTime: counters.cryptoTime.total, storeTime: counters.storeTime.total,
            damagedReads: counters.damagedReads.total, hiddenNames: counters.hiddenNames.total,
            filesSealed: counters.filesSealed.total, completedObjects: counters.completedObjects.total,
            isCompleting: store.completion?.isActive ?? false, nodes: nodes.count,
            keysLocked: SecretMemory.allLocked, cacheLocked: store.cache.isLocked)
    }
}
