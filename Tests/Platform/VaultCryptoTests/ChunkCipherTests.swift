import Testing

@testable import VaultCrypto

/// Encrypts under fresh IVs.
func seal(
    _ plaintext: [UInt8], firstChunkIndex: UInt64, chunkSize: Int, _ cipher: ChunkCipher, _ keys: ChunkKeys
) throws -> [UInt8] {
    let count = (plaintext.count + chunkSize - 1) / chunkSize
    var records = [UInt8](repeating: 0, count: plaintext.count + count * 32)
    try plaintext.withUnsafeBytes { source in
        try records.withUnsafeMutableBytes { destination in
            try cipher.encrypt(
                source, firstChunkIndex: firstChunkIndex, chunkSize: chunkSize, keys: keys, into: destination)
        }
    }
    return records
}

/// Decrypts records. Returns the count of verified ones, and the buffer, which was filled with 0xee before.
func open(
    _ records: [UInt8], firstChunkIndex: UInt64, chunkSize: Int, length: Int, _ cipher: ChunkCipher, _ keys: ChunkKeys
) throws -> (count: Int, plaintext: [UInt8]) {
    var plaintext = [UInt8](repeating: 0xee, count: length)
    let count = try records.withUnsafeBytes { source in
        try plaintext.withUnsafeMutableBytes { destination in
            try cipher.decrypt(
                source, firstChunkIndex: firstChunkIndex, chunkSize: chunkSize, keys: keys, into: destination)
        }
    }
    return (count, plaintext)
}

@Suite struct ChunkCipherTests {
    static let chunkSizes = [4096, 16384]
    let cipher: ChunkCipher
    let keys: ChunkKeys

    init() throws {
        cipher = try ChunkCipher()
        keys = ChunkKeys(
            cipherKey: try .random(count: 32), macKey: try .random(count: 32), macR: try .random(count: 16))
    }

    @Test("open inverts seal, on the grid of sizes around the chunk", arguments: chunkSizes)
    func openInvertsSeal(c: Int) throws {
        for length in [0, 1, c - 1, c, c + 1, 2 * c, 2 * c + 500, 8 * c + 17, 40 * c + 1] {
            let plaintext = pattern(length)
            let records = try seal(plaintext, firstChunkIndex: 5, chunkSize: c, cipher, keys)
            let opened = try open(records, firstChunkIndex: 5, chunkSize: c, length: length, cipher, keys)
            #expect(opened.count == (length + c - 1) / c)
            #expect(opened.plaintext == plaintext, "length \(length)")
        }
    }

    @Test("No context works without a key once a cipher has forgotten its keys")
    func forgottenContexts() throws {
        _ = try seal(pattern(5000), firstChunkIndex: 0, chunkSize: 4096, cipher, keys)
        cipher.forgetKeys()
        let block = cipher.scratch.block
        #expect(throws: CryptoError.self) { try cipher.chainDecryption.transform(block, into: block, size: 16) }
        #expect(throws: CryptoError.self) { try cipher.chainEncryption.transform(block, into: block, size: 16) }
        #expect(throws: CryptoError.self) { try cipher.blockEncryption.transform(block, into: block, size: 16) }
        #expect(throws: CryptoError.self) { try cipher.maskEncryption.transform(block, into: block, size: 16) }
    }

    @Test("chains in lockstep give the same result as plain CBC", arguments: chunkSizes, 1...20)
    func lockstepEqualsPlainChains(c: Int, lanes: Int) throws {
        let chain = try CipherContext(Library.loaded().aesCBC(keySize: 32), encrypts: true)
        try chain.setKey(keys.cipherKey)
        for lastSize in [1, 15, 16, 17, 4095, 4096, c] {
            let plaintext = pattern((lanes - 1) * c + lastSize)
            let records = try seal(plaintext, firstChunkIndex: 0, chunkSize: c, cipher, keys)
            for chunk in 0..<lanes {
                let size = (chunk == lanes - 1 ? lastSize : c) / 16 * 16
                let record = records[(chunk * (c + 32))...]
                var expected = [UInt8](repeating: 0, count: size)
                try chain.setVector(Array(record.prefix(16)))
                try chain.transform(Array(plaintext[(chunk * c)...].prefix(size)), into: &expected, size: size)
                #expect(expected == Array(record.dropFirst(16).prefix(size)), "chunk \(chunk), last size \(lastSize)")
            }
        }
    }

    @Test("a flipped bit anywhere fails that record, whose plaintext is not written", arguments: [1, 15, 16, 17, 100])
    func flippedBit(lastSize: Int) throws {
        let length = 2 * 64 + lastSize
        let plaintext = pattern(length)
        let records = try seal(plaintext, firstChunkIndex: 9, chunkSize: 64, cipher, keys)
        for index in records.indices {
            var changed = records
            changed[index] ^= 1 << UInt8(index % 8)
            let opened = try open(changed, firstChunkIndex: 9, chunkSize: 64, length: length, cipher, keys)
            let bad = index / 96
            #expect(opened.count == bad)
            #expect(Array(opened.plaintext[..<(bad * 64)]) == Array(plaintext[..<(bad * 64)]))
            #expect(opened.plaintext[(bad * 64)...].allSatisfy { $0 == 0xee })
        }
    }

    @Test("the first bad record of a long run ends it", arguments: [0, 1, 31, 32, 33, 39])
    func longRun(bad: Int) throws {
        let plaintext = pattern(40 * 4096)
        var records = try seal(plaintext, firstChunkIndex: 0, chunkSize: 4096, cipher, keys)
        records[bad * 4128 + 2000] ^= 4
        let opened = try open(records, firstChunkIndex: 0, chunkSize: 4096, length: plaintext.count, cipher, keys)
        #expect(opened.count == bad)
        #expect(Array(opened.plaintext[..<(bad * 4096)]) == Array(plaintext[..<(bad * 4096)]))
        #expect(opened.plaintext[(bad * 4096)...].allSatisfy { $0 == 0xee })
    }

    @Test("a record at another index, cut, or grown does not verify")
    func anotherPlaceOrLength() throws {
        let records = try seal(pattern(200), firstChunkIndex: 1 << 40, chunkSize: 4096, cipher, keys)
        #expect(try open(records, firstChunkIndex: 1 << 40, chunkSize: 4096, length: 200, cipher, keys).count == 1)
        for index in [0, 1, (1 << 40) + 1, 1 << 41, .max] as [UInt64] {
            let opened = try open(records, firstChunkIndex: index, chunkSize: 4096, length: 200, cipher, keys)
            #expect(opened == (0, [UInt8](repeating: 0xee, count: 200)))
        }
        for length in [1, 16, 199, 201, 216] {
            let other = Array(records.prefix(length + 32)) + [UInt8](repeating: 0, count: max(0, length - 200))
            let opened = try open(other, firstChunkIndex: 1 << 40, chunkSize: 4096, length: length, cipher, keys)
            #expect(opened == (0, [UInt8](repeating: 0xee, count: length)))
        }
        let zeros = [UInt8](repeating: 0, count: 232)
        #expect(try open(zeros, firstChunkIndex: 0, chunkSize: 4096, length: 200, cipher, keys).count == 0)
    }

    @Test("a file's records do not open under another file's keys, however often the keys change")
    func changeOfKeys() throws {
        let other = ChunkKeys(
            cipherKey: try .random(count: 32), macKey: try .random(count: 32), macR: try .random(count: 16))
        #expect(other.identity != keys.identity && keys.identity != 0)
        let mine = try seal(pattern(5000), firstChunkIndex: 0, chunkSize: 4096, cipher, keys)
        let theirs = try seal(pattern(5000), firstChunkIndex: 0, chunkSize: 4096, cipher, other)
        for _ in 0..<3 {
            for (records, right, wrong) in [(mine, keys, other), (theirs, other, keys)] {
                #expect(try open(records, firstChunkIndex: 0, chunkSize: 4096, length: 5000, cipher, wrong).count == 0)
                let opened = try open(records, firstChunkIndex: 0, chunkSize: 4096, length: 5000, cipher, right)
                #expect(opened == (2, pattern(5000)))
            }
        }
    }

    @Test("keys can be forgotten at any time")
    func keysCanBeForgottenAtAnyTime() throws {
        cipher.forgetKeys()
        cipher.forgetKeys()
        let records = try seal(pattern(40000), firstChunkIndex: 0, chunkSize: 4096, cipher, keys)
        cipher.forgetKeys()
        let kept = UnsafeRawBufferPointer(start: cipher.scratch.authenticatorKey, count: 256)
        #expect(kept.allSatisfy { $0 == 0 })
        let opened = try open(records, firstChunkIndex: 0, chunkSize: 4096, length: 40000, cipher, keys)
        #expect(opened == (10, pattern(40000)))
    }

    @Test("no IV repeats, over many refills of the pool")
    func vectorsAreUnique() throws {
        var vectors: Set<[UInt8]> = []
        for _ in 0..<20 {
            let records = try seal(pattern(100 * 16), firstChunkIndex: 0, chunkSize: 16, cipher, keys)
            for chunk in 0..<100 { vectors.insert(Array(records[(chunk * 48)...].prefix(16))) }
        }
        #expect(vectors.count == 2000)
        #expect(!vectors.contains([UInt8](repeating: 0, count: 16)))
    }

    @Test("counts blocks decrypted")
    func countsBlocksDecrypted() throws {
        let records = try seal(pattern(4096 + 17), firstChunkIndex: 0, chunkSize: 4096, cipher, keys)
        #expect(cipher.blocksDecrypted == 0)
        _ = try open(records, firstChunkIndex: 0, chunkSize: 4096, length: 4096 + 17, cipher, keys)
        #expect(cipher.blocksDecrypted == 256 + 2)
        _ = try open(records, firstChunkIndex: 1, chunkSize: 4096, length: 4096 + 17, cipher, keys)
        #expect(cipher.blocksDecrypted == 256 + 2)
    }

    @Test(
        "sizes that do not fit together",
        arguments: [
            (0, 1, 4096), (0, 32, 4096), (1, 32, 4096), (1, 34, 4096), (4096, 4127, 4096), (4097, 4129, 4096),
            (100, 132, 0), (100, 132, -16), (100, 132, 100), (100, 132, 1 << 21),
        ])
    func wrongSizes(plaintextSize: Int, recordsSize: Int, chunkSize: Int) {
        #expect {
            try open(
                [UInt8](repeating: 0, count: recordsSize), firstChunkIndex: 0, chunkSize: chunkSize,
                length: plaintextSize, cipher, keys)
        } throws: {
            if case .invalidInput? = $0 as? CryptoError { true } else { false }
        }
    }
}
