import FileSystem
import TestSupport
import Testing
import VaultCrypto

@testable import ViewFormats

/// Reads of only the needed blocks: the counters show that the others are neither read nor decrypted.
@Suite struct NeededBlocksTests {
    let place: ViewPlace
    let test: TestKey

    init() throws {
        place = try ViewPlace()
        test = try TestKey()
    }

    /// Opens a new file in chunks.
    private func chunked(_ count: Int, chunkSize: Int) throws -> (ChainedFile, [UInt8]) {
        let plaintext = pattern(count)
        let source = try place.source(of: test.encrypt(plaintext, chunkSize: chunkSize))
        let map = try ChainFormat.chunks(
            of: source, chunkSize: UInt64(chunkSize), vector: test.vector, padding: .pkcs7, key: test.key)
        return (place.file(source, map, [test.key]), plaintext)
    }

    @Test("One byte in the middle of a 16 MiB chunk: one page, and the block before it")
    func oneByte() throws {
        let chunk = 16 << 20
        let (file, plaintext) = try chunked(chunk + 100, chunkSize: chunk)
        let first = try place.count(file, 1, at: 8_000_003, of: plaintext)
        #expect(first == Counted(blocks: 256, bytes: 4096 + 16, hits: 0, misses: 1))
        let again = try place.count(file, 1, at: 8_000_004, of: plaintext)
        #expect(again == Counted(blocks: 0, bytes: 0, hits: 1, misses: 0))
        // The first page uses the chain's own vector.
        let start = try place.count(file, 1, at: 5, of: plaintext)
        #expect(start == Counted(blocks: 256, bytes: 4096, hits: 0, misses: 1))
    }

    @Test("One byte anywhere in chunks that begin within pages and blocks", arguments: [4097, 5000, 10_001, 100_003])
    func unaligned(chunkSize: Int) throws {
        let (file, plaintext) = try chunked(400_000, chunkSize: chunkSize)
        for offset in stride(from: 0, to: plaintext.count, by: 4096) {
            let counted = try place.count(file, 1, at: offset, of: plaintext)
            // A page may be in two chunks, which begin or end within a block.
            let chains = (offset + 4095) / chunkSize - offset / chunkSize + 1
            #expect(counted.blocks <= UInt64(256 + chains))
            #expect(counted.bytes <= counted.blocks * 16 + 16 + (chains > 1 ? 16 : 0))
            #expect(counted.misses == 1)
        }
    }

    @Test("A read of pages, some of them cached: only the others are decrypted")
    func hits() throws {
        let (file, plaintext) = try chunked(100_000, chunkSize: 100_000)
        _ = try place.read(file, 1, at: 2 * 4096)
        let counted = try place.count(file, 5 * 4096, at: 0, of: plaintext)
        #expect(counted == Counted(blocks: 4 * 256, bytes: 4 * 4096 + 16, hits: 1, misses: 4))
    }

    @Test("An unaligned read decrypts each block once, with one read of the source")
    func edges() throws {
        let (file, plaintext) = try chunked(100_000, chunkSize: 100_000)
        let counted = try place.count(file, 10_000, at: 4100, of: plaintext)
        #expect(counted == Counted(blocks: 3 * 256, bytes: 3 * 4096 + 16, hits: 0, misses: 3))
        #expect(place.cache.usedSize == 3 * 4096)
    }

    @Test("The last page, shorter than a page, is cached too")
    func lastPage() throws {
        let (file, plaintext) = try chunked(10_000, chunkSize: 16_384)
        let first = try place.count(file, 4096, at: 8192, of: plaintext)
        #expect(first == Counted(blocks: 113, bytes: 113 * 16 + 16, hits: 0, misses: 1))
        let again = try place.count(file, 9, at: 9999, of: plaintext)
        #expect(again == Counted(blocks: 0, bytes: 0, hits: 1, misses: 0))
    }

    @Test("A read of more than 16 pages bypasses the cache, and decrypts neighbouring chunks together")
    func streaming() throws {
        let (file, plaintext) = try chunked(300_000, chunkSize: 4096)
        let counted = try place.count(file, 300_000, at: 0, of: plaintext)
        #expect(counted.blocks == 300_000 / 16)
        // In a batch, the first chunk's padding is between two chunks.
        #expect(counted.bytes <= 300_000 + 74 * 16)
        #expect(counted.hits == 0 && counted.misses == 0)
        #expect(place.cache.usedSize == 0)
        _ = try place.read(file, 65536, at: 0)
        #expect(place.cache.usedSize == 65536)
    }

    @Test("Bytes between two chains in one page are not read")
    func distantChains() throws {
        let plaintext = pattern(4096)
        let first = try test.encrypt(plaintext[..<2048])
        let empty = try (0..<100).flatMap { _ in try test.encrypt([]) }
        let source = try place.source(of: first + empty + test.encrypt(plaintext[2048...]))
        var ranges = [0..<2064]
        for number in 0..<100 { ranges.append((2064 + number * 16)..<(2080 + number * 16)) }
        ranges.append((2064 + 1600)..<Int(source.size))
        let encryption = CipherChain.Encryption(key: 0, vector: .bytes(test.vector), padding: .pkcs7)
        let chains = ranges.map { range in
            CipherChain(
                ciphertext: UInt64(range.lowerBound)..<UInt64(range.upperBound), encryption: encryption)
        }
        let map = try ChainFormat.ranges(chains, of: source, keys: [test.key])
        let counted = try place.count(place.file(source, map, [test.key]), 1, at: 0, of: plaintext)
        #expect(counted == Counted(blocks: 256, bytes: 4096, hits: 0, misses: 1))
    }
}
