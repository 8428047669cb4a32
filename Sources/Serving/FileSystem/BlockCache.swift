internal import CLinux
internal import Glibc
package import LinuxSystem
internal import Synchronization
internal import SystemPackage

/// An LRU cache of decrypted chunks, of fixed size. Its memory is locked if the limit allows, excluded from core dumps,
/// and zeroed when released. Sharded by (file, chunk). A shard's mutex is held only to copy or zero chunks. Any thread.
package final class BlockCache: Sendable {
    private struct Shard: ~Copyable, Sendable {
        let index: Mutex<CacheIndex>
        /// Written only under `index`.
        nonisolated(unsafe) let memory: UnsafeMutableRawPointer
    }

    package let blockSize: Int
    /// The actual size in bytes: whole blocks, the same number in each shard.
    package let capacity: Int
    package let isLocked: Bool
    /// All blocks. Internal, so that a test can check for zeroes.
    nonisolated(unsafe) let arena: UnsafeMutableRawPointer
    private nonisolated(unsafe) let shards: UnsafeMutablePointer<Shard>
    private let shardCount: Int

    /// - Parameter capacity: bytes. Rounded down to whole blocks, but at least one.
    /// - Throws: `ENOMEM`.
    package init(capacity: Int, blockSize: Int) throws(StoreError) {
        let blocks = max(1, capacity / blockSize)
        var shardCount = 1
        while shardCount < 16 && blocks / (shardCount * 2) >= 8 { shardCount *= 2 }
        let blocksPerShard = blocks / shardCount
        self.blockSize = blockSize
        self.shardCount = shardCount
        self.capacity = blocksPerShard * shardCount * blockSize
        var locked: Int32 = 0
        guard let arena = linux_map_secret_memory(self.capacity, &locked) else { throw .system(.noMemory) }
        self.arena = arena
        isLocked = locked != 0
        shards = .allocate(capacity: shardCount)
        for shard in 0..<shardCount {
            (shards + shard).initialize(
                to: Shard(
                    index: Mutex(CacheIndex(blockCount: blocksPerShard)),
                    memory: arena + shard * blocksPerShard * blockSize))
        }
    }

    deinit {
        shards.deinitialize(count: shardCount)
        shards.deallocate()
        linux_unmap_secret_memory(arena, capacity)
    }

    private func shard(of key: CacheIndex.Key) -> Int {
        // The index takes the low bits of the same hash.
        Int(truncatingIfNeeded: CacheIndex.hash(key) >> 48) & (shardCount - 1)
    }

    /// Copies `range` of a cached chunk's plaintext to `destination`. Returns false if the chunk is missing or shorter.
    /// - Parameter isLastUse: true to replace this chunk before all others.
    package func copy(
        file: UInt64, chunk: UInt64, range: Range<Int>, isLastUse: Bool = false,
        to destination: UnsafeMutableRawPointer
    ) -> Bool {
        let key = CacheIndex.Key(file: file, chunk: chunk)
        let shard = shard(of: key)
        return shards[shard].index.withLock { index in
            guard let found = index.find(key), found.size >= range.upperBound else { return false }
            destination.copyMemory(
                from: shards[shard].memory + found.block * blockSize + range.lowerBound, byteCount: range.count)
            if isLastUse { index.age(found.block) }
            return true
        }
    }

    package func contains(file: UInt64, chunk: UInt64) -> Bool {
        let key = CacheIndex.Key(file: file, chunk: chunk)
        return shards[shard(of: key)].index.withLock { $0.find(key) != nil }
    }

    /// Copies a verified chunk into the cache, unless `changes` has moved on from `seen` or `seen` is odd. In both
    /// cases a writer was active, so the chunk may be old.
    package func insert(
        file: UInt64, chunk: UInt64, _ plaintext: UnsafeRawBufferPointer, seen: UInt64, changes: ChangeCounter
    ) {
        let key = CacheIndex.Key(file: file, chunk: chunk)
        let shard = shard(of: key)
        shards[shard].index.withLock { index in
            guard changes.value == seen, !ChangeCounter.isChanging(seen) else { return }
            store(plaintext, for: key, in: &index, shard: shard)
        }
    }

    /// Replaces a chunk by the newly written one. Called by its writer.
    package func update(file: UInt64, chunk: UInt64, _ plaintext: UnsafeRawBufferPointer) {
        let key = CacheIndex.Key(file: file, chunk: chunk)
        let shard = shard(of: key)
        shards[shard].index.withLock { index in store(plaintext, for: key, in: &index, shard: shard) }
    }

    private func store(
        _ plaintext: UnsafeRawBufferPointer, for key: CacheIndex.Key, in index: inout CacheIndex, shard: Int
    ) {
        guard let source = plaintext.baseAddress else { return }
        let block = index.assign(key, size: plaintext.count)
        (shards[shard].memory + block * blockSize).copyMemory(from: source, byteCount: plaintext.count)
    }

    /// Drops and zeroes one chunk.
    package func remove(file: UInt64, chunk: UInt64) {
        let key = CacheIndex.Key(file: file, chunk: chunk)
        let shard = shard(of: key)
        shards[shard].index.withLock { index in drop(key, in: &index, shard: shard) }
    }

    /// Drops and zeroes all chunks of `file` from `chunk` on.
    package func removeAll(file: UInt64, from chunk: UInt64 = 0) { _ = remove { $0.file == file && $0.chunk >= chunk } }

    /// Drops and zeroes everything. Returns the number of bytes in use before.
    package func removeEverything() -> Int { remove { _ in true } }

    private func remove(where isMeant: (CacheIndex.Key) -> Bool) -> Int {
        var blocks = 0
        for shard in 0..<shardCount {
            shards[shard].index.withLock { index in
                let keys = index.keys(where: isMeant)
                blocks += keys.count
                for key in keys { drop(key, in: &index, shard: shard) }
            }
        }
        return blocks * blockSize
    }

    private func drop(_ key: CacheIndex.Key, in index: inout CacheIndex, shard: Int) {
        guard let block = index.remove(key) else { return }
        // The compiler may not drop this store, because the mapping outlives the call.
        memset(shards[shard].memory + block * blockSize, 0, blockSize)
    }

    package var usedSize: Int {
        (0..<shardCount).reduce(0) { sum, shard in sum + shards[shard].index.withLock { $0.usedBlocks } } * blockSize
    }
}

/// Counts the changes of one file's chunks. Odd while a writer is active. If a reader sees the same even value before
/// and after its `pread`, its data is current. Any thread reads the counter, but only the file's writer changes it.
package final class ChangeCounter: Sendable {
    private let counter = Atomic<UInt64>(0)

    package init() {}

    package var value: UInt64 { counter.load(ordering: .sequentiallyConsistent) }

    /// Runs `body`, which changes chunks. The caller has the file's write lock.
    /// - Throws: the error of `body`.
    package func during<Result, Failure: Error>(_ body: () throws(Failure) -> Result) throws(Failure) -> Result {
        counter.add(1, ordering: .sequentiallyConsistent)
        defer { counter.add(1, ordering: .sequentiallyConsistent) }
        return try body()
    }

    package static func isChanging(_ value: UInt64) -> Bool { value & 1 == 1 }
}
