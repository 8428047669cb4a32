import TestSupport
import Testing

@testable import FileSystem

/// The index of the block cache.
@Suite struct CacheIndexTests {
    private func key(_ chunk: UInt64, file: UInt64 = 1) -> CacheIndex.Key { .init(file: file, chunk: chunk) }

    @Test("The least recently used block is evicted first, and a lookup counts as use")
    func order() {
        var index = CacheIndex(blockCount: 3)
        for chunk in 0..<3 as Range<UInt64> { _ = index.assign(key(chunk), size: 10) }
        let first = index.find(key(0))?.block
        let oldest = index.find(key(1))?.block
        #expect(index.find(key(2)) != nil)
        #expect(index.find(key(0))?.block == first)
        #expect(index.assign(key(9), size: 5) == oldest)
        #expect(index.find(key(1)) == nil)
        #expect(index.find(key(9))?.size == 5)
        #expect(index.usedBlocks == 3)
    }

    @Test("Each chunk has only one block")
    func placeAgain() {
        var index = CacheIndex(blockCount: 4)
        let block = index.assign(key(7), size: 100)
        #expect(index.assign(key(7), size: 50) == block)
        #expect(index.find(key(7))?.size == 50)
        #expect(index.usedBlocks == 1)
        #expect(index.remove(key(7)) == block)
        #expect(index.remove(key(7)) == nil)
        #expect(index.usedBlocks == 0)
    }

    @Test("Only the matching keys are removed")
    func blocksOfFile() {
        var index = CacheIndex(blockCount: 8)
        for chunk in 0..<4 as Range<UInt64> {
            _ = index.assign(key(chunk), size: 1)
            _ = index.assign(key(chunk, file: 2), size: 1)
        }
        #expect(index.keys { $0.file == 1 && $0.chunk >= 2 }.map(\.chunk).sorted() == [2, 3])
        #expect(index.keys { $0.file == 2 }.count == 4)
        #expect(index.keys { $0.file == 3 }.isEmpty)
    }

    @Test("The index agrees with a list of keys over a few thousand random operations", arguments: [1, 2, 7, 64])
    func model(blockCount: Int) {
        var generator = SeededGenerator(seed: UInt64(blockCount))
        var index = CacheIndex(blockCount: blockCount)
        var keys: [CacheIndex.Key] = []
        for _ in 0..<5000 {
            let key = key(
                UInt64.random(in: 0..<UInt64(blockCount * 2), using: &generator),
                file: UInt64.random(in: 1...2, using: &generator))
            let known = keys.firstIndex(of: key)
            switch Int.random(in: 0..<5, using: &generator) {
            case 0:
                #expect((index.remove(key) != nil) == (known != nil))
                if let known { keys.remove(at: known) }
            case 1:
                #expect((index.find(key) != nil) == (known != nil))
                if let known { keys.append(keys.remove(at: known)) }
            case 2:
                if let known, let found = index.find(key) {
                    index.age(found.block)
                    keys.insert(keys.remove(at: known), at: 0)
                }
            default:
                let block = index.assign(key, size: 1)
                #expect((0..<blockCount).contains(block))
                if let known { keys.remove(at: known) } else if keys.count == blockCount { keys.removeFirst() }
                keys.append(key)
            }
            #expect(index.usedBlocks == keys.count)
        }
        for key in keys { #expect(index.find(key) != nil) }
    }
}
