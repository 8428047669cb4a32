internal import FileSystem

/// What the block cache costs, at its default size and in two patterns: chunk after chunk, and all over the file.
enum CacheBenchmarks {
    private static let chunkSize = 4096
    private static let capacity = 32 << 20

    static func run(_ stopwatch: inout Stopwatch) throws {
        let cache = try BlockCache(capacity: capacity, blockSize: chunkSize)
        let changes = ChangeCounter()
        let block = UnsafeMutableRawBufferPointer.allocate(byteCount: chunkSize, alignment: 4096)
        block.initializeMemory(as: UInt8.self, repeating: 1)
        defer { block.deallocate() }
        guard let target = block.baseAddress else { return }
        // Half of what fits, so that no shard drops any.
        let count = UInt64(capacity / chunkSize / 2)
        func insert(_ chunk: UInt64) {
            cache.insert(
                file: 1, chunk: chunk, UnsafeRawBufferPointer(block), seen: changes.value, changes: changes)
        }
        func copy(_ chunk: UInt64, isThere: Bool) {
            let found = cache.copy(file: 1, chunk: chunk, range: 0..<chunkSize, to: target)
            precondition(found == isThere, "internal error: chunk \(chunk) in the cache: \(found)")
        }
        for chunk in 0..<count { insert(chunk) }
        var next: UInt64 = 0
        try stopwatch.measure("cache hit, in order", bytes: chunkSize) {
            copy(next % count, isThere: true)
            next += 1
        }
        try stopwatch.measure("cache hit, scattered", bytes: chunkSize) {
            // Knuth's multiplier: every chunk, far from the one before.
            copy(next &* 2_654_435_761 % count, isThere: true)
            next += 1
        }
        try stopwatch.measure("cache miss") {
            copy(count + next, isThere: false)
            next += 1
        }
        try stopwatch.measure("cache insert, again", bytes: chunkSize) {
            insert(next % count)
            next += 1
        }
        try stopwatch.measure("cache insert, dropping the oldest", bytes: chunkSize) {
            insert(next)
            next += 1
        }
    }
}
