/// The work of a mount in `status`: totals since the mount, and current values.
package struct Statistics: Codable, Sendable, Equatable {
    /// Chunks returned from the block cache, and chunks read and decrypted.
    package var cacheHits: UInt64
    package var cacheMisses: UInt64
    /// Bytes.
    package var cacheSize: Int
    package var cacheUsed: Int
    package var aesBlocksDecrypted: UInt64
    package var ciphertextBytesRead: UInt64
    package var ciphertextBytesWritten: UInt64
    /// Microseconds in encryption and decryption with authentication, and in reads and writes of backing files. The sum over
    /// all threads.
    package var cryptoMicroseconds: UInt64
    package var storeMicroseconds: UInt64
    /// Reads refused because authentication failed.
    package var damagedReads: UInt64
    /// Names and attributes hidden because they do not authenticate. Counted each time.
    package var hiddenNames: UInt64
    package var filesSealed: UInt64
    /// Files without a header, and directories without a record, that were completed as empty ones after an unclean
    /// end.
    package var completedObjects: UInt64
    /// True while the walk that completes them is not done.
    package var isCompleting: Bool
    /// Files and directories that the kernel knows.
    package var nodes: Int
    package var keysLocked: Bool
    package var cacheLocked: Bool

    /// Times in nanoseconds.
    package init(
        cacheHits: UInt64, cacheMisses: UInt64, cacheSize: Int, cacheUsed: Int, aesBlocksDecrypted: UInt64,
        ciphertextBytesRead: UInt64, ciphertextBytesWritten: UInt64, cryptoTime: UInt64, storeTime: UInt64,
        damagedReads: UInt64, hiddenNames: UInt64,
        filesSealed: UInt64, completedObjects: UInt64 = 0, isCompleting: Bool = false, nodes: Int, keysLocked: Bool,
        cacheLocked: Bool
    ) {
        self.cacheHits = cacheHits
        self.cacheMisses = cacheMisses
        self.cacheSize = cacheSize
        self.cacheUsed = cacheUsed
        self.aesBlocksDecrypted = aesBlocksDecrypted
        self.ciphertextBytesRead = ciphertextBytesRead
        self.ciphertextBytesWritten = ciphertextBytesWritten
        cryptoMicroseconds = cryptoTime / 1000
        storeMicroseconds = storeTime / 1000
        self.damagedReads = damagedReads
        self.hiddenNames = hiddenNames
        self.filesSealed = filesSealed
        self.completedObjects = completedObjects
        self.isCompleting = isCompleting
        self.nodes = nodes
        self.keysLocked = keysLocked
        self.cacheLocked = cacheLocked
    }
}
