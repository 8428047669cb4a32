import FileSystem
import Glibc
import LinuxSystem
import Testing
import VaultStore

@testable import ViewFormats

@Suite struct ChainMapTests {
    private func source(size: UInt64) -> SourceFile {
        SourceFile(Descriptor(owning: open("/dev/null", O_RDONLY | O_CLOEXEC)), size: size)
    }

    private func chain(_ range: Range<UInt64>, _ vector: CipherChain.Vector? = .bytes(.zero)) -> CipherChain {
        CipherChain(
            ciphertext: range,
            encryption: vector.map { CipherChain.Encryption(key: 1, vector: $0, padding: .pkcs7) })
    }

    @Test("Every offset is in the chain that has it, empty ones before, between and behind")
    func stored() throws {
        let lengths: [UInt64] = [0, 0, 5, 0, 16, 1, 0, 0, 0, 31, 0]
        var start: UInt64 = 0
        let chains = lengths.map { length in
            defer { start += 32 }
            return (chain(start..<(start + 32)), length)
        }
        let map = try ChainMap(chains, in: source(size: 1000))
        #expect(map.length == 53)
        #expect(map.count == 11)
        #expect(map.keyCount == 2)
        var offset: UInt64 = 0
        for (number, length) in lengths.enumerated() {
            let expected = ChainMap.Piece(chain: chains[number].0, plaintext: offset..<(offset + length))
            #expect(map[UInt64(number)] == expected)
            for within in 0..<length { #expect(map.piece(at: offset + within) == expected) }
            offset += length
        }
        #expect(map.piece(at: 53) == nil)
        #expect(map.piece(at: .max) == nil)
        let empty = try ChainMap([], in: source(size: 0))
        #expect(empty.length == 0 && empty.piece(at: 0) == nil && empty.keyCount == 0)
    }

    @Test("Chains that are not in the file, or have no such plaintext")
    func refused() {
        let cases: [(CipherChain, UInt64)] = [
            (chain(0..<112), 96), (chain(0..<17), 1), (chain(0..<16), 17), (chain(0..<16, nil), 15),
            (chain(0..<16, .inFile(at: 85)), 1), (chain(0..<16, .inFile(at: .max - 3)), 1),
            (chain((.max - 16)..<(.max), nil), 16), (chain(0..<(UInt64.max - 15), nil), .max - 15),
        ]
        for (chain, length) in cases {
            #expect(malformed { _ = try ChainMap([(chain, length)], in: source(size: 100)) } != nil, "\(chain)")
        }
    }

    @Test("A sum of lengths that is out of range")
    func tooLong() throws {
        let half = chain(0..<(1 << 62), nil)
        let source = source(size: 1 << 62)
        _ = try ChainMap([(half, 1 << 62)], in: source)
        #expect(
            malformed { _ = try ChainMap([(half, 1 << 62), (half, 1 << 62)], in: source) }
                == "the parts are longer than any file")
        // A range that a signed integer cannot count.
        #expect(malformed { _ = try ChainMap([(chain(0..<(1 << 63)), 16)], in: source) } != nil)
    }

    @Test("Computed chunks of any size are the ones that were cut", arguments: [1, 15, 16, 17, 4096] as [UInt64])
    func computed(chunkSize: UInt64) {
        let encryption = CipherChain.Encryption(key: 0, vector: .bytes(.zero), padding: .pkcs7)
        let stride = chunkSize / 16 * 16 + 16
        let chunks = ChunkPieces(
            chunkSize: chunkSize, encryption: encryption, size: 9 * stride + 16, lastLength: min(chunkSize, 3))
        let map = ChainMap(chunks)
        #expect(map.count == 10)
        #expect(map.length == 9 * chunkSize + min(chunkSize, 3))
        for offset in 0..<map.length {
            let piece = map.piece(at: offset)
            let number = offset / chunkSize
            #expect(piece == map[number])
            #expect(piece?.chain.ciphertext.lowerBound == number * stride)
            #expect(piece?.plaintext == (number * chunkSize)..<min((number + 1) * chunkSize, map.length))
            #expect(piece?.chain.ciphertext.upperBound == min((number + 1) * stride, 9 * stride + 16))
        }
        #expect(map.piece(at: map.length) == nil)
    }
}
