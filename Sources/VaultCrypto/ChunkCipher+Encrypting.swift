extension ChunkCipher {
    /// Encrypts a run of contiguous chunks into contiguous records, each under a fresh random IV.
    ///
    /// - Parameters:
    ///   - plaintext: chunks of `chunkSize`, the last one possibly shorter.
    ///   - records: exactly 32 bytes a chunk more than `plaintext`; must not overlap it.
    /// - Throws: `.invalidInput` if the sizes do not belong together, `.library`. The records are then worthless.
    package func encrypt(
        _ plaintext: UnsafeRawBufferPointer, firstChunkIndex: UInt64, chunkSize: Int, keys: ChunkKeys,
        into records: UnsafeMutableRawBufferPointer
    ) throws(CryptoError) {
        let shape = try ChunkShape(plaintextSize: plaintext.count, recordsSize: records.count, chunkSize: chunkSize)
        guard let destination = records.baseAddress else { return }
        for position in 0..<shape.count {
            try drawVector(into: destination + position * shape.recordSize)
        }
        try encryptUnderPlacedVectors(
            plaintext, shape: shape, firstChunkIndex: firstChunkIndex, keys: keys, into: records)
    }

    /// The part of ``encrypt(_:firstChunkIndex:chunkSize:keys:into:)`` that is determined by its input: the IVs are in
    /// the records already.
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
            try makeMasks(first, recordSize: shape.recordSize, count: lanes)
            for lane in 0..<lanes {
                let size = shape.size(encrypted + lane)
                let ciphertext = first + lane * shape.recordSize + ChunkShape.vectorSize
                try authenticate(
                    ciphertext, size: size, chunkIndex: firstChunkIndex &+ UInt64(encrypted + lane), maskPosition: lane,
                    into: ciphertext + size)
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
    /// A CBC chain is serial, each block waiting for the one before it, and leaves most of an AES unit idle. So several
    /// chains advance in lockstep, one block of each to a call. A single chain runs in libcrypto's own loop.
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

    /// Takes 16 random bytes out of the pool, drawn many at a time: a call of the generator costs a microsecond.
    private func drawVector(into vector: UnsafeMutableRawPointer) throws(CryptoError) {
        let pool = scratch.vectorPool
        guard let base = pool.baseAddress else { return }
        if unusedVectorBytes < ChunkShape.vectorSize {
            try SecureRandom.fill(pool)
            unusedVectorBytes = pool.count
        }
        // Counted down first, and overwritten: no vector is taken twice.
        unusedVectorBytes -= ChunkShape.vectorSize
        let drawn = base + unusedVectorBytes
        vector.storeBytes(of: drawn.load(as: Block.self), as: Block.self)
        drawn.storeBytes(of: Block.zero, as: Block.self)
    }
}
