extension ChunkCipher {
    /// Encrypts a run of contiguous chunks into contiguous records, each under a fresh random IV.
    ///
    /// - Parameters:
    ///   - plaintext: chunks of `chunkSize`, the last one possibly shorter.
    ///   - records: exactly 32 bytes a chunk more than `plaintext`; must not overlap it.
    /// - Throws: `.invalidInput` where the sizes do not belong together, `.library`; the records are then worthless.
    package func seal(
        _ plaintext: UnsafeRawBufferPointer, firstChunkIndex: UInt64, chunkSize: Int, keys: ChunkKeys,
        into records: UnsafeMutableRawBufferPointer
    ) throws(CryptoError) {
        let shape = try ChunkShape(plaintextSize: plaintext.count, recordsSize: records.count, chunkSize: chunkSize)
        guard let destination = records.baseAddress else { return }
        for position in 0..<shape.count {
            try drawVector(into: destination + position * shape.recordSize)
        }
        try sealUnderPlacedVectors(plaintext, shape: shape, firstChunkIndex: firstChunkIndex, keys: keys, into: records)
    }

    /// The part of ``seal(_:firstChunkIndex:chunkSize:keys:into:)`` that is determined by its input: the IVs are in the
    /// records already.
    func sealUnderPlacedVectors(
        _ plaintext: UnsafeRawBufferPointer, shape: ChunkShape, firstChunkIndex: UInt64, keys: ChunkKeys,
        into records: UnsafeMutableRawBufferPointer
    ) throws(CryptoError) {
        guard let source = plaintext.baseAddress, let destination = records.baseAddress else { return }
        try use(keys)
        var sealed = 0
        while sealed < shape.count {
            let lanes = min(ChunkScratch.laneCount, shape.count - sealed)
            let first = destination + sealed * shape.recordSize
            let lastSize = shape.size(sealed + lanes - 1)
            try encrypt(
                source + sealed * shape.chunkSize, lanes: lanes, chunkSize: shape.chunkSize, lastSize: lastSize,
                into: first)
            try makeMasks(first, recordSize: shape.recordSize, count: lanes)
            for lane in 0..<lanes {
                let size = shape.size(sealed + lane)
                let ciphertext = first + lane * shape.recordSize + ChunkShape.vectorSize
                try authenticate(
                    ciphertext, size: size, chunkIndex: firstChunkIndex &+ UInt64(sealed + lane), maskPosition: lane,
                    into: ciphertext + size)
            }
            sealed += lanes
        }
    }

    /// Encrypts up to eight chunks, of which the last may be shorter.
    ///
    /// A chain is serial, each block waiting for the one before it, and leaves most of an AES unit idle. So the chains
    /// of several chunks advance together, one block of each to a call. That pays from three chunks on.
    private func encrypt(
        _ plaintext: UnsafeRawPointer, lanes: Int, chunkSize: Int, lastSize: Int,
        into records: UnsafeMutableRawPointer
    ) throws(CryptoError) {
        let recordSize = chunkSize + ChunkShape.recordOverhead
        if lanes < 3 {
            for lane in 0..<lanes {
                try encryptAlone(
                    plaintext + lane * chunkSize, size: lane == lanes - 1 ? lastSize : chunkSize,
                    into: records + lane * recordSize)
            }
            return
        }
        let lastChained = lastSize - lastSize % ChunkShape.blockSize
        for lane in 0..<lanes {
            let vector = (records + lane * recordSize).loadUnaligned(as: Block.self)
            scratch.lanes.storeBytes(of: vector, toByteOffset: lane * 16, as: Block.self)
        }
        try advance(plaintext, chunkSize: chunkSize, lanes: lanes, from: 0, to: lastChained, into: records)
        try advance(
            plaintext, chunkSize: chunkSize, lanes: lanes - 1, from: lastChained, to: chunkSize, into: records)
        try encryptResidue(
            plaintext + (lanes - 1) * chunkSize, size: lastSize, into: records + (lanes - 1) * recordSize)
    }

    /// Advances the chains of `lanes` chunks in lockstep over the bytes `start..<end` of each, whole blocks.
    private func advance(
        _ plaintext: UnsafeRawPointer, chunkSize: Int, lanes: Int, from start: Int, to end: Int,
        into records: UnsafeMutableRawPointer
    ) throws(CryptoError) {
        let recordSize = chunkSize + ChunkShape.recordOverhead
        let state = scratch.lanes
        var offset = start
        while offset < end {
            for lane in 0..<lanes {
                let block = (plaintext + lane * chunkSize + offset).loadUnaligned(as: Block.self)
                let previous = state.load(fromByteOffset: lane * 16, as: Block.self)
                state.storeBytes(of: block ^ previous, toByteOffset: lane * 16, as: Block.self)
            }
            try blockEncryption.transform(state, into: state, size: lanes * 16)
            for lane in 0..<lanes {
                let block = state.load(fromByteOffset: lane * 16, as: Block.self)
                let target = records + lane * recordSize + ChunkShape.vectorSize + offset
                target.storeBytes(of: block, as: Block.self)
            }
            offset += ChunkShape.blockSize
        }
    }

    /// Encrypts one chunk by plain CBC, under the IV at the start of `record`.
    func encryptAlone(
        _ plaintext: UnsafeRawPointer, size: Int, into record: UnsafeMutableRawPointer
    ) throws(CryptoError) {
        let chained = size - size % ChunkShape.blockSize
        if chained > 0 {
            try chainEncryption.setVector(record)
            try chainEncryption.transform(plaintext, into: record + ChunkShape.vectorSize, size: chained)
        }
        try encryptResidue(plaintext, size: size, into: record)
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
