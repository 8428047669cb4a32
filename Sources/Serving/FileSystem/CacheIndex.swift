/// The index of one cache shard: the chunk of each block, and the blocks by last use. It consists of fixed arrays with
/// indices as links, so it allocates only in `init`. Guarded by its shard's mutex.
struct CacheIndex {
    struct Key: Equatable {
        var file, chunk: UInt64
    }

    static let none: Int32 = -1
    private var buckets, chain: [Int32]
    private var keys: [Key]
    private var sizes, newer, older: [Int32]
    private var newest = CacheIndex.none
    private var oldest = CacheIndex.none
    private var free: [Int32]

    init(blockCount: Int) {
        var bucketCount = 1
        while bucketCount < blockCount * 2 { bucketCount *= 2 }
        buckets = Array(repeating: Self.none, count: bucketCount)
        chain = Array(repeating: Self.none, count: blockCount)
        keys = Array(repeating: Key(file: 0, chunk: 0), count: blockCount)
        sizes = Array(repeating: 0, count: blockCount)
        newer = Array(repeating: Self.none, count: blockCount)
        older = Array(repeating: Self.none, count: blockCount)
        free = (0..<Int32(blockCount)).reversed()
    }

    static func hash(_ key: Key) -> UInt64 {
        // MurmurHash3's 64-bit finalizer, because the keys are small counters.
        var h = key.file &* 0x9E37_79B9_7F4A_7C15 ^ key.chunk
        h ^= h >> 33
        h &*= 0xFF51_AFD7_ED55_8CCD
        h ^= h >> 33
        h &*= 0xC4CE_B9FE_1A85_EC53
        return h ^ h >> 33
    }

    private func bucket(of key: Key) -> Int { Int(truncatingIfNeeded: Self.hash(key)) & (buckets.count - 1) }

    /// Returns the block of `key` and its size in bytes. Makes the block the newest.
    mutating func find(_ key: Key) -> (block: Int, size: Int)? {
        var block = buckets[bucket(of: key)]
        while block != Self.none {
            if keys[Int(block)] == key {
                touch(block)
                return (Int(block), Int(sizes[Int(block)]))
            }
            block = chain[Int(block)]
        }
        return nil
    }

    /// Returns the block to fill for `key`: its own, a free one, or the one used longest ago.
    mutating func assign(_ key: Key, size: Int) -> Int {
        if let found = find(key) {
            sizes[found.block] = Int32(size)
            return found.block
        }
        let block: Int32
        if let unused = free.popLast() {
            block = unused
        } else {
            block = oldest
            detach(block)
        }
        keys[Int(block)] = key
        sizes[Int(block)] = Int32(size)
        let home = bucket(of: key)
        chain[Int(block)] = buckets[home]
        buckets[home] = block
        link(block)
        return Int(block)
    }

    /// Makes the block the oldest, and so the next to be replaced.
    mutating func age(_ block: Int) {
        let block = Int32(block)
        if oldest == block { return }
        unlink(block)
        older[Int(block)] = Self.none
        newer[Int(block)] = oldest
        if oldest != Self.none { older[Int(oldest)] = block } else { newest = block }
        oldest = block
    }

    /// Removes `key`. Returns its block, which the caller must zero.
    mutating func remove(_ key: Key) -> Int? {
        guard let found = find(key) else { return nil }
        detach(Int32(found.block))
        free.append(Int32(found.block))
        return found.block
    }

    /// Returns the keys in use for which `isMeant` returns true.
    func keys(where isMeant: (Key) -> Bool) -> [Key] {
        var result: [Key] = []
        var block = newest
        while block != Self.none {
            let key = keys[Int(block)]
            if isMeant(key) { result.append(key) }
            block = older[Int(block)]
        }
        return result
    }

    var usedBlocks: Int { keys.count - free.count }

    private mutating func touch(_ block: Int32) {
        if newest == block { return }
        unlink(block)
        link(block)
    }

    private mutating func link(_ block: Int32) {
        older[Int(block)] = newest
        newer[Int(block)] = Self.none
        if newest != Self.none { newer[Int(newest)] = block } else { oldest = block }
        newest = block
    }

    private mutating func unlink(_ block: Int32) {
        let n = newer[Int(block)]
        let o = older[Int(block)]
        if n != Self.none { older[Int(n)] = o } else { newest = o }
        if o != Self.none { newer[Int(o)] = n } else { oldest = n }
    }

    /// Removes a block from the LRU list and from its hash chain.
    private mutating func detach(_ block: Int32) {
        unlink(block)
        let home = bucket(of: keys[Int(block)])
        if buckets[home] == block {
            buckets[home] = chain[Int(block)]
            return
        }
        var previous = Int(buckets[home])
        while chain[previous] != block { previous = Int(chain[previous]) }
        chain[previous] = chain[Int(block)]
    }
}
