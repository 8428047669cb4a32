package import BackingStore
internal import CLinux
internal import Glibc
internal import Synchronization
package import SystemPackage
internal import VaultCrypto
package import VaultFormat

/// The backing store of one mounted vault: its root, its keys, and what all of its files share. Any thread.
package final class Store: Sendable {
    package let root: Descriptor
    package let keyRing: KeyRing
    package let layout: ChunkLayout
    package let cache: BlockCache
    package let counters = Counters()
    package let isReadOnly: Bool
    /// A file shorter than it was sealed can be opened all the same: what is missing does not verify.
    package let readsCutFiles: Bool
    let journal: Journal
    package let sealer: Sealer
    /// The store's allocation unit in bytes: within it, a file grows without needing space.
    let blockSize: UInt64
    /// syncfs(2) of a FUSE file system may come back here or do nothing.
    let isOnFuse: Bool
    /// The first characters of this mount's temporary names; another's are left over from a crash.
    let temporaryPrefix: String
    private let nextToken = Atomic<UInt64>(1)

    /// - Parameters:
    ///   - root: the vault's root directory, opened for reading; this store takes a descriptor of its own.
    ///   - cacheSize: bytes for the block cache.
    package init(
        root: FileDescriptor, keyRing: KeyRing, cacheSize: Int, isReadOnly: Bool, readsCutFiles: Bool = false
    ) throws(StoreError) {
        let copy = try retrying { fcntl(root.rawValue, F_DUPFD_CLOEXEC, 3) }
        self.root = Descriptor(owning: copy)
        self.keyRing = keyRing
        self.isReadOnly = isReadOnly
        self.readsCutFiles = readsCutFiles
        layout = keyRing.layout
        cache = try BlockCache(capacity: cacheSize, blockSize: layout.chunkSize)
        var space = statvfs()
        try retrying { fstatvfs(copy, &space) }
        blockSize = min(4096, max(512, UInt64(space.f_bsize)))
        isOnFuse = linux_filesystem_type(copy) == 0x6573_5546  // FUSE_SUPER_MAGIC, statfs(2)
        do { temporaryPrefix = String(try SecureRandom.integer(), radix: 16) } catch { throw StoreError(error) }
        if isReadOnly {
            if keyRing.intentCipher != nil, try RekeyIntentFile.isThere(in: self.root) {
                throw .damaged("vaultfs.rekey: a step of a rekey is half done")
            }
        } else {
            // Before anything is looked up, made or swept.
            try RekeyIntentFile(root: self.root, keyRing: keyRing)?.rollForward()
        }
        journal = try Journal(root: copy, chunkSize: layout.chunkSize, isReadOnly: isReadOnly)
        sealer = Sealer(root: self.root, usesSyncfs: !isOnFuse)
    }

    /// True while the journal holds records that may be the good copy (after a crash).
    package var hasJournaledRecords: Bool { journal.isHoldingRecords }

    /// A number for an open file that no other has had.
    func makeToken() -> UInt64 {
        nextToken.add(1, ordering: .relaxed).oldValue
    }
}
