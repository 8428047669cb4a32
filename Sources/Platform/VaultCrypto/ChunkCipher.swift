internal import COpenSSL

/// Encrypts and authenticates chunks (file format: "A file"): AES-256-CBC with residual block termination, and
/// Poly1305-AES over the ciphertext and the chunk's index.
///
/// One per thread: not `Sendable`. It keeps the schedules of the last keys, so each chunk needs only its initial
/// vector, and no allocation.
package final class ChunkCipher {
    let chainDecryption, chainEncryption: CipherContext
    /// AES of single blocks under the cipher key, for residues, and for chains in lockstep.
    let blockEncryption: CipherContext
    /// AES of single blocks under the MAC key, for the one-time half of the authenticator's key.
    let maskEncryption: CipherContext
    let authenticator: Poly1305Context
    let scratch: ChunkScratch
    var unusedVectorBytes = 0
    private var keyIdentity: UInt64 = 0

    /// The number of AES blocks decrypted so far, including residues.
    package internal(set) var blocksDecrypted: UInt64 = 0

    /// Makes a cipher without keys. Throws `.library` if libcrypto or the kernel lacks memory.
    package init() throws(CryptoError) {
        let library = try Library.loaded()
        chainDecryption = try CipherContext(library.aesCBC(keySize: 32), encrypts: false)
        chainEncryption = try CipherContext(library.aesCBC(keySize: 32), encrypts: true)
        blockEncryption = try CipherContext(library.aes256ECB, encrypts: true)
        maskEncryption = try CipherContext(library.aes256ECB, encrypts: true)
        authenticator = try Poly1305Context(library.poly1305)
        scratch = try ChunkScratch()
    }

    deinit { forgetKeys() }

    /// Wipes the key schedules and everything derived from keys. The next use sets them again.
    package func forgetKeys() {
        keyIdentity = 0
        chainDecryption.forgetKey()
        chainEncryption.forgetKey()
        blockEncryption.forgetKey()
        maskEncryption.forgetKey()
        authenticator.forgetKey()
        scratch.wipeKeys()
    }

    /// Sets the key schedules, unless they are already those of `keys`. Throws `.keyForgotten`.
    func use(_ keys: ChunkKeys) throws(CryptoError) {
        // Read this before the keys: if they are forgotten and restored meanwhile, the next use sets them once more.
        let identity = keys.identity
        guard identity != 0 else { throw .keyForgotten }
        guard identity != keyIdentity else { return }
        // If a call fails half-way, the contexts hold keys of two files.
        keyIdentity = 0
        try chainDecryption.setKey(keys.cipherKey)
        try chainEncryption.setKey(keys.cipherKey)
        try blockEncryption.setKey(keys.cipherKey)
        try maskEncryption.setKey(keys.macKey)
        try keys.macR.withKey { (bytes) throws(CryptoError) in
            UnsafeMutableRawBufferPointer(start: scratch.authenticatorKey, count: 16).copyMemory(from: bytes)
        }
        keyIdentity = identity
    }

    /// Writes the tag of `message` under a nonce of 16 bytes, which must be unique under these keys: Poly1305-AES over
    /// message ‖ LE64(first half of the nonce).
    /// - Throws: `.keyForgotten`, `.library`.
    package func authenticate(
        _ message: UnsafeRawBufferPointer, nonce: (UInt64, UInt64), keys: ChunkKeys,
        into tag: UnsafeMutableRawBufferPointer
    ) throws(CryptoError) {
        guard let destination = tag.baseAddress, tag.count == 16 else { return }
        try use(keys)
        scratch.masks.storeBytes(of: Block(nonce.0.littleEndian, nonce.1.littleEndian), as: Block.self)
        try maskEncryption.transform(scratch.masks, into: scratch.masks, size: 16)
        try authenticate(message.bytes, chunkIndex: nonce.0, maskPosition: 0, into: destination)
    }

    /// Computes AES(macKey; IV) of up to `maskCount` records, in one call, into the scratch's masks.
    func makeMasks(_ records: RawSpan, recordSize: Int, count: Int) throws(CryptoError) {
        let masks = scratch.masks
        for position in 0..<count {
            let vector = records.unsafeLoadUnaligned(fromByteOffset: position * recordSize, as: Block.self)
            masks.storeBytes(of: vector, toByteOffset: position * 16, as: Block.self)
        }
        try maskEncryption.transform(masks, into: masks, size: count * 16)
    }

    /// Writes the tag of a record whose mask is at `position` of the masks.
    @inline(__always)
    func authenticate(
        _ ciphertext: RawSpan, chunkIndex: UInt64, maskPosition: Int, into tag: UnsafeMutableRawPointer
    ) throws(CryptoError) {
        let mask = scratch.masks.load(fromByteOffset: maskPosition * 16, as: Block.self)
        scratch.authenticatorKey.storeBytes(of: mask, toByteOffset: 16, as: Block.self)
        try authenticator.authenticate(ciphertext, trailer: chunkIndex, key: scratch.authenticatorKey, into: tag)
    }

    /// Terminates with the residual block, the same both ways: XORs fewer than 16 bytes with the start of
    /// AES(cipherKey; `previous`). `previous` is the last ciphertext block or, if there is none, the IV.
    func transformResidue(
        _ input: UnsafeRawPointer, size: Int, previous: UnsafeRawPointer, into output: UnsafeMutableRawPointer
    ) throws(CryptoError) {
        let block = scratch.block
        try blockEncryption.transform(previous, into: block, size: ChunkShape.blockSize)
        for offset in 0..<size {
            let byte = input.load(fromByteOffset: offset, as: UInt8.self)
            let mask = block.load(fromByteOffset: offset, as: UInt8.self)
            output.storeBytes(of: byte ^ mask, toByteOffset: offset, as: UInt8.self)
        }
    }
}

/// One AES block, in the form for XORs.
typealias Block = SIMD2<UInt64>

extension ChunkCipher {
    /// Encrypts a run of contiguous chunks into contiguous records, each under a fresh random IV.
    ///
    /// - Parameters:
    ///   - plaintext: chunks of `chunkSize`, the last one possibly shorter.
    ///   - records: exactly 32 bytes a chunk larger than `plaintext`. Must not overlap it.
    /// - Throws: `.invalidInput` if the sizes do not match, `.keyForgotten`, `.library`. The records are useless then.
    package func encrypt(
        _ plaintext: UnsafeRawBufferPointer, firstChunkIndex: UInt64, chunkSize: Int, keys: ChunkKeys,
        into records: UnsafeMutableRawBufferPointer
    ) throws(CryptoError) {
        let shape = try ChunkShape(plaintextSize: plaintext.count, recordsSize: records.count, chunkSize: chunkSize)
        guard let destination = records.baseAddress else { return }
        for position in 0..<shape.count { try drawVector(into: destination + position * shape.recordSize) }
        try encryptUnderPlacedVectors(
            plaintext, shape: shape, firstChunkIndex: firstChunkIndex, keys: keys, into: records)
    }

    /// Does the deterministic part of ``encrypt(_:firstChunkIndex:chunkSize:keys:into:)``: the IVs are already in the
    /// records.
    func encryptUnderPlacedVectors(
        _ plaintext: UnsafeRawBufferPointer, shape: ChunkShape, firstChunkIndex: UInt64, keys: ChunkKeys,
        into records: UnsafeMutableRawBufferPointer
    ) throws(CryptoError) {
        guard let source = plaintext.baseAddress, let destination = records.baseAddress else { return }
        try use(keys)
        var encrypted = 0
        while encrypted < shape.count {
            let lanes = min(ChunkScratch.laneCount, shape.count - encrypted)
            let first = destination + encrypted * shape.recordSize
            let lastSize = shape.size(encrypted + lanes - 1)
            try encrypt(
                source + encrypted * shape.chunkSize, lanes: lanes, chunkSize: shape.chunkSize, lastSize: lastSize,
                into: first)
            let done = records.bytes.extracting((encrypted * shape.recordSize)...)
            try makeMasks(done, recordSize: shape.recordSize, count: lanes)
            for lane in 0..<lanes {
                let start = lane * shape.recordSize + ChunkShape.vectorSize
                let end = start + shape.size(encrypted + lane)
                try authenticate(
                    done.extracting(start..<end), chunkIndex: firstChunkIndex &+ UInt64(encrypted + lane),
                    maskPosition: lane, into: first + end)
            }
            encrypted += lanes
        }
    }

    /// Encrypts up to eight chunks, of which the last may be shorter.
    private func encrypt(
        _ plaintext: UnsafeRawPointer, lanes: Int, chunkSize: Int, lastSize: Int,
        into records: UnsafeMutableRawPointer
    ) throws(CryptoError) {
        let recordSize = chunkSize + ChunkShape.recordOverhead
        for lane in 0..<lanes {
            let vector = (records + lane * recordSize).loadUnaligned(as: Block.self)
            scratch.lanes.storeBytes(of: vector, toByteOffset: lane * 16, as: Block.self)
        }
        let lastChained = lastSize - lastSize % ChunkShape.blockSize
        try advance(plaintext, chunkSize: chunkSize, lanes: lanes, from: 0, to: lastChained, into: records)
        try advance(plaintext, chunkSize: chunkSize, lanes: lanes - 1, from: lastChained, to: chunkSize, into: records)
        try encryptResidue(
            plaintext + (lanes - 1) * chunkSize, size: lastSize, into: records + (lanes - 1) * recordSize)
    }

    /// Advances the chains of the first `lanes` chunks over the bytes `start..<end` of each, whole blocks.
    ///
    /// A CBC chain is serial, so it leaves most of an AES unit idle while each block waits for the one before it. So
    /// several chains advance in lockstep, one block of each to a call. A single chain runs in libcrypto's own loop.
    private func advance(
        _ plaintext: UnsafeRawPointer, chunkSize: Int, lanes: Int, from start: Int, to end: Int,
        into records: UnsafeMutableRawPointer
    ) throws(CryptoError) {
        guard lanes > 0, start < end else { return }
        let recordSize = chunkSize + ChunkShape.recordOverhead
        let state = scratch.lanes
        var source = plaintext + start
        var target = records + (ChunkShape.vectorSize + start)
        if lanes == 1 {
            try chainEncryption.setVector(state)
            return try chainEncryption.transform(source, into: target, size: end - start)
        }
        let sourceEnd = plaintext + end
        while source < sourceEnd {
            for lane in 0..<lanes {
                let block = (source + lane &* chunkSize).loadUnaligned(as: Block.self)
                let previous = state.load(fromByteOffset: lane &* 16, as: Block.self)
                state.storeBytes(of: block ^ previous, toByteOffset: lane &* 16, as: Block.self)
            }
            try blockEncryption.transform(state, into: state, size: lanes &* 16)
            for lane in 0..<lanes {
                let block = state.load(fromByteOffset: lane &* 16, as: Block.self)
                (target + lane &* recordSize).storeBytes(of: block, as: Block.self)
            }
            source += ChunkShape.blockSize
            target += ChunkShape.blockSize
        }
    }

    private func encryptResidue(
        _ plaintext: UnsafeRawPointer, size: Int, into record: UnsafeMutableRawPointer
    ) throws(CryptoError) {
        let residue = size % ChunkShape.blockSize
        guard residue > 0 else { return }
        // The IV precedes the ciphertext, so the block before the residue starts at this offset of the record.
        let previous = size - residue
        try transformResidue(
            plaintext + previous, size: residue, previous: record + previous,
            into: record + previous + ChunkShape.vectorSize)
    }

    /// Takes 16 random bytes out of a pool, because each call of the generator costs a microsecond.
    private func drawVector(into vector: UnsafeMutableRawPointer) throws(CryptoError) {
        let pool = scratch.vectorPool
        guard let base = pool.baseAddress else { return }
        if unusedVectorBytes < ChunkShape.vectorSize {
            try SecureRandom.fill(pool)
            unusedVectorBytes = pool.count
        }
        // Count them first, and overwrite them afterwards, so that no vector is used twice.
        unusedVectorBytes -= ChunkShape.vectorSize
        let drawn = base + unusedVectorBytes
        vector.storeBytes(of: drawn.load(as: Block.self), as: Block.self)
        drawn.storeBytes(of: Block.zero, as: Block.self)
    }
}

extension ChunkCipher {
    /// Verifies and decrypts a run of contiguous records into contiguous plaintext of exactly their size.
    ///
    /// - Parameters:
    ///   - records: IV (16) ‖ ciphertext (n) ‖ tag (16) for each chunk. n is `chunkSize` except for the last.
    ///   - plaintext: must not overlap `records`.
    /// - Returns: the number of leading records that verified. Only these were decrypted.
    /// - Throws: `.invalidInput` if the sizes do not match, `.keyForgotten`, `.library`.
    package func decrypt(
        _ records: UnsafeRawBufferPointer, firstChunkIndex: UInt64, chunkSize: Int, keys: ChunkKeys,
        into plaintext: UnsafeMutableRawBufferPointer
    ) throws(CryptoError) -> Int {
        let shape = try ChunkShape(plaintextSize: plaintext.count, recordsSize: records.count, chunkSize: chunkSize)
        guard let destination = plaintext.baseAddress else { return 0 }
        try use(keys)
        var verified = 0
        while verified < shape.count {
            let batch = min(ChunkScratch.maskCount, shape.count - verified)
            let rest = records.bytes.extracting((verified * shape.recordSize)...)
            try makeMasks(rest, recordSize: shape.recordSize, count: batch)
            for position in 0..<batch {
                let start = position * shape.recordSize
                let record = rest.extracting(start..<(start + shape.size(verified) + ChunkShape.recordOverhead))
                let chunkIndex = firstChunkIndex &+ UInt64(verified)
                guard try verifies(record, chunkIndex: chunkIndex, maskPosition: position) else { return verified }
                try decrypt(record, into: destination + verified * chunkSize)
                verified += 1
            }
        }
        return verified
    }

    private func verifies(_ record: RawSpan, chunkIndex: UInt64, maskPosition: Int) throws(CryptoError) -> Bool {
        let ciphertext = record.extracting(ChunkShape.vectorSize..<(record.byteCount - ChunkShape.tagSize))
        try authenticate(ciphertext, chunkIndex: chunkIndex, maskPosition: maskPosition, into: scratch.tag)
        return record.extracting(last: ChunkShape.tagSize).withUnsafeBytes { stored in
            CRYPTO_memcmp(scratch.tag, stored.baseAddress, ChunkShape.tagSize) == 0
        }
    }

    private func decrypt(_ record: RawSpan, into plaintext: UnsafeMutableRawPointer) throws(CryptoError) {
        let size = record.byteCount - ChunkShape.recordOverhead
        let residue = size % ChunkShape.blockSize
        let chained = size - residue
        if chained > 0 {
            // Let the CBC context decrypt the IV as if it were ciphertext, because it then XORs the next block with the
            // IV. That saves 70 ns over EVP_DecryptInit_ex2, of the 1000 for a chunk of 4 KiB.
            try chainDecryption.transform(record.extracting(first: ChunkShape.vectorSize), into: scratch.block)
            let blocks = record.extracting(ChunkShape.vectorSize..<(ChunkShape.vectorSize + chained))
            try chainDecryption.transform(blocks, into: plaintext)
        }
        if residue > 0 {
            try record.withUnsafeBytes { (bytes) throws(CryptoError) in
                guard let start = bytes.baseAddress else { return }
                // The IV precedes the ciphertext, so `previous` is right with and without a block before the residue.
                let previous = start + chained
                try transformResidue(
                    previous + ChunkShape.blockSize, size: residue, previous: previous, into: plaintext + chained)
            }
        }
        blocksDecrypted &+= UInt64((size + ChunkShape.blockSize - 1) / ChunkShape.blockSize)
    }
}
