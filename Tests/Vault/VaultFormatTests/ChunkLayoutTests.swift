import Testing
import VaultFormat

@Suite struct ChunkLayoutTests {
    static let chunkSizes = [4096, 16384, 1_048_576]

    /// Pairs of plaintext length and backing size around the chunk boundaries of each size.
    static let grid: [(chunkSize: Int, length: UInt64, backingSize: UInt64)] = chunkSizes.flatMap { chunkSize in
        let c = UInt64(chunkSize)
        return [
            (chunkSize, 0, 128), (chunkSize, 1, 161), (chunkSize, c - 1, 128 + c + 31), (chunkSize, c, 128 + c + 32),
            (chunkSize, c + 1, 128 + c + 65), (chunkSize, 2 * c, 128 + 2 * c + 64),
            (chunkSize, 2 * c + 500, 128 + 2 * c + 596),
        ]
    }

    /// The table of the specification.
    static let table: [(length: UInt64, with4096: UInt64, with16384: UInt64)] = [
        (0, 128, 128), (1, 161, 161), (4095, 4255, 4255), (4096, 4256, 4256), (4097, 4289, 4257), (5000, 5192, 5160),
        (8192, 8384, 8352), (8692, 8916, 8852), (16384, 16640, 16544), (33268, 33684, 33492),
    ]

    @Test("Sizes-1: lengths and backing sizes around the chunk", arguments: grid)
    func sizes(chunkSize: Int, length: UInt64, backingSize: UInt64) {
        let layout = ChunkLayout(chunkSize: chunkSize)
        #expect(layout.backingSize(ofPlaintextLength: length) == backingSize)
        #expect(layout.plaintextLength(ofBackingSize: backingSize) == length)
    }

    @Test("Sizes-1: the specification's table", arguments: table)
    func worked(length: UInt64, with4096: UInt64, with16384: UInt64) {
        #expect(ChunkLayout(chunkSize: 4096).backingSize(ofPlaintextLength: length) == with4096)
        #expect(ChunkLayout(chunkSize: 16384).backingSize(ofPlaintextLength: length) == with16384)
    }

    @Test("Sizes-1: chunks of a file of c + 500 bytes")
    func chunks() {
        let layout = ChunkLayout(chunkSize: 4096)
        let length: UInt64 = 4596
        #expect(layout.recordSize == 4128)
        #expect(layout.chunkCount(ofLength: length) == 2)
        #expect(layout.chunkCount(ofLength: 0) == 0)
        #expect(layout.chunkCount(ofLength: 4096) == 1)
        #expect((0..<4).map { layout.plaintextSize(ofChunk: $0, length: length) } == [4096, 500, 0, 0])
        #expect((0..<3).map { layout.recordOffset(ofChunk: $0) } == [128, 4256, 8384])
        #expect((0..<3).map { layout.plaintextOffset(ofChunk: $0) } == [0, 4096, 8192])
        #expect([0, 4095, 4096, 8191, 8192].map { layout.chunkIndex(ofPlaintextOffset: $0) } == [0, 0, 1, 1, 2])
    }

    @Test("Sizes-2: a fragment of 1…32 bytes and a truncated header count as no data", arguments: chunkSizes)
    func fragments(chunkSize: Int) {
        let layout = ChunkLayout(chunkSize: chunkSize)
        for size in UInt64(0)...160 { #expect(layout.plaintextLength(ofBackingSize: size) == 0) }
        let full = layout.backingSize(ofPlaintextLength: UInt64(chunkSize))
        for fragment in UInt64(0)...32 {
            #expect(layout.plaintextLength(ofBackingSize: full + fragment) == UInt64(chunkSize))
        }
        #expect(layout.plaintextLength(ofBackingSize: full + 33) == UInt64(chunkSize) + 1)
    }

    @Test("Conventions-5: hostile sizes do not trap", arguments: chunkSizes)
    func hostile(chunkSize: Int) {
        let layout = ChunkLayout(chunkSize: chunkSize)
        let values = [
            0, 1, 127, 128, 129, UInt64(Int64.max) - 1, UInt64(Int64.max), 1 << 63, .max - 128, .max - 1, .max,
        ]
        for value in values {
            let length = layout.plaintextLength(ofBackingSize: value)
            #expect(length <= value)
            #expect(layout.backingSize(ofPlaintextLength: value) >= value)
            #expect(layout.chunkIndex(ofPlaintextOffset: value) <= value)
            #expect(layout.plaintextOffset(ofChunk: value) >= value)
            #expect(layout.recordOffset(ofChunk: value) >= value)
            #expect(layout.chunkCount(ofLength: value) <= value)
            for other in values {
                #expect((0...chunkSize).contains(layout.plaintextSize(ofChunk: value, length: other)))
            }
        }
        #expect(layout.plaintextSize(ofChunk: 0, length: .max) == chunkSize)
        #expect(layout.plaintextSize(ofChunk: .max, length: .max) == 0)
    }

    @Test("Values-2: only powers of two in 4096…1048576 are chunk sizes")
    func validity() {
        let valid = (0...2_097_153).filter { ChunkLayout.isValid(chunkSize: $0) }
        #expect(valid == (12...20).map { 1 << $0 })
        #expect(!ChunkLayout.isValid(chunkSize: -4096))
        #expect(!ChunkLayout.isValid(chunkSize: .min))
        #expect(!ChunkLayout.isValid(chunkSize: .max))
    }
}
