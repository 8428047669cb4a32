import TestSupport
import Testing

@testable import FileSystem

/// The cache of decrypted chunks.
@Suite struct BlockCacheTests {
    private let blockSize = 4096

    private func read(_ cache: BlockCache, _ file: UInt64, _ chunk: UInt64, _ range: Range<Int>) -> [UInt8]? {
        var bytes = [UInt8](repeating: 0xEE, count: range.count)
        let found = bytes.withUnsafeMutableBytes { buffer in
            buffer.baseAddress.map { cache.copy(file: file, chunk: chunk, range: range, to: $0) } ?? false
        }
        return found ? bytes : nil
    }

    private func put(_ cache: BlockCache, _ file: UInt64, _ chunk: UInt64, _ bytes: [UInt8]) {
        bytes.withUnsafeBytes { cache.update(file: file, chunk: chunk, $0) }
    }

    @Test("A cached chunk is returned, no longer than its content")
    func copies() throws {
        let cache = try BlockCache(capacity: 64 << 10, blockSize: blockSize)
        let content = pattern(1000)
        put(cache, 1, 5, content)
        #expect(read(cache, 1, 5, 0..<1000) == content)
        #expect(read(cache, 1, 5, 10..<20) == Array(content[10..<20]))
        #expect(read(cache, 1, 5, 0..<1001) == nil)
        #expect(read(cache, 2, 5, 0..<1) == nil)
        #expect(read(cache, 1, 6, 0..<1) == nil)
    }

    @Test("Capacity is whole blocks, at least one, and is not exceeded", arguments: [0, 4096, 5 << 20, 100_000])
    func capacity(size: Int) throws {
        let cache = try BlockCache(capacity: size, blockSize: blockSize)
        #expect(cache.capacity >= blockSize)
        #expect(cache.capacity <= max(blockSize, size))
        for chunk in 0..<3000 as Range<UInt64> { put(cache, 1, chunk, [UInt8](repeating: 1, count: blockSize)) }
        #expect(cache.usedSize <= cache.capacity)
        #expect(cache.usedSize > cache.capacity / 2)
        #expect(cache.contains(file: 1, chunk: 2999))
    }

    @Test("Data read before a change is not inserted after it or during it")
    func insertAfterChange() throws {
        let cache = try BlockCache(capacity: 64 << 10, blockSize: blockSize)
        let changes = ChangeCounter()
        func insert(_ chunk: UInt64, seen: UInt64) {
            pattern(10).withUnsafeBytes {
                cache.insert(file: 1, chunk: chunk, $0, seen: seen, changes: changes)
            }
        }
        insert(0, seen: changes.value)
        #expect(cache.contains(file: 1, chunk: 0))
        let before = changes.value
        let during = changes.during {
            insert(1, seen: before)
            // Data read while a writer is running may be old, even if the counter has not changed since.
            insert(2, seen: changes.value)
            return changes.value
        }
        insert(3, seen: before)
        insert(4, seen: during)
        for chunk in 1...4 as ClosedRange<UInt64> { #expect(!cache.contains(file: 1, chunk: chunk), "\(chunk)") }
        insert(5, seen: changes.value)
        #expect(cache.contains(file: 1, chunk: 5))
    }

    @Test("A file's chunks are removed together, another file's chunks stay")
    func removeAll() throws {
        let cache = try BlockCache(capacity: 1 << 20, blockSize: blockSize)
        for chunk in 0..<8 as Range<UInt64> {
            put(cache, 1, chunk, pattern(100))
            put(cache, 2, chunk, pattern(100))
        }
        cache.removeAll(file: 1, from: 6)
        #expect((0..<8).filter { cache.contains(file: 1, chunk: $0) } == Array(0..<6))
        cache.removeAll(file: 1)
        #expect((0..<8).allSatisfy { !cache.contains(file: 1, chunk: $0) })
        #expect((0..<8).allSatisfy { cache.contains(file: 2, chunk: $0) })
        #expect(cache.usedSize == 8 * blockSize)
    }

    @Test("Plaintext is wiped from memory once a chunk is removed")
    func zeroing() throws {
        let cache = try BlockCache(capacity: blockSize, blockSize: blockSize)
        put(cache, 1, 0, [UInt8](repeating: 0x5A, count: blockSize))
        cache.remove(file: 1, chunk: 0)
        // The only block is reused for another chunk, of which only the first byte is written.
        put(cache, 1, 1, [1])
        let memory = UnsafeRawBufferPointer(start: cache.arena, count: blockSize)
        #expect(Array(memory) == [1] + [UInt8](repeating: 0, count: blockSize - 1))
    }
}
