import Testing

@testable import ViewFormats

@Suite struct ChainMapTests {
    private func chain(_ range: Range<UInt64>, _ vector: CipherChain.Vector? = .bytes(.zero)) -> CipherChain {
        CipherChain(
            ciphertext: range,
            encryption: vector.map { CipherChain.Encryption(key: 1, vector: $0, padding: .pkcs7) })
    }

    @Test("Every offset is in the chain that contains it, with empty chains before, between and after")
    func stored() {
        let lengths: [UInt64] = [0, 0, 5, 0, 16, 1, 0, 0, 0, 31, 0]
        var start: UInt64 = 0
        let chains = lengths.map { length in
            defer { start += 32 }
            return (chain(start..<(start + 32)), length)
        }
        let map = ChainMap(chains)
        #expect(map.length == 53)
        #expect(map.count == 11)
        var offset: UInt64 = 0
        for (number, length) in lengths.enumerated() {
            let expected = ChainMap.Piece(chain: chains[number].0, plaintext: offset..<(offset + length))
            #expect(map[UInt64(number)] == expected)
            for within in 0..<length { #expect(map.piece(at: offset + within) == expected) }
            offset += length
        }
        #expect(map.piece(at: 53) == nil)
        #expect(map.piece(at: .max) == nil)
        let empty = ChainMap([])
        #expect(empty.length == 0 && empty.piece(at: 0) == nil)
    }

    @Test("Computed chunks of any size equal the chunks that were cut", arguments: [1, 15, 16, 17, 4096] as [UInt64])
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
