package import FileSystem
internal import VaultCrypto
internal import ViewFormats

extension ViewFileSystem {
    /// The totals and what is held, as of now.
    package func statistics() -> Statistics {
        Statistics(
            cacheHits: counters.cacheHits.total, cacheMisses: counters.cacheMisses.total, cacheSize: cache.capacity,
            cacheUsed: cache.usedSize, aesBlocksDecrypted: counters.aesBlocksDecrypted.total,
            ciphertextBytesRead: counters.ciphertextBytesRead.total, ciphertextBytesWritten: 0,
            cryptoTime: counters.cryptoTime.total, storeTime: counters.storeTime.total,
            damagedReads: counters.damagedReads.total, hiddenNames: 0, filesSealed: 0, nodes: nodes.count,
            keysLocked: SecretMemory.allLocked, cacheLocked: cache.isLocked)
    }

    /// What does not work, a line each, for people.
    package func problems() -> [String] {
        source.problems + fileProblems.all
    }
}
