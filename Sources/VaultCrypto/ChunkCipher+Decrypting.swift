internal import COpenSSL

extension ChunkCipher {
    /// Verifies and decrypts a run of contiguous records into contiguous plaintext of exactly their size.
    ///
    /// - Parameters:
    ///   - records: IV (16) ‖ ciphertext (n) ‖ tag (16) for each chunk. n is `chunkSize` except for the last.
    ///   - plaintext: must not overlap `records`.
    /// - Returns: how many leading records verified. These, and no others, were decrypted.
    /// - Throws: `.invalidInput` if the sizes do not belong together, `.library`.
    package func decrypt(
        _ records: UnsafeRawBufferPointer, firstChunkIndex: UInt64, chunkSize: Int, keys: ChunkKeys,
        into plaintext: UnsafeMutableRawBufferPointer
    ) throws(CryptoError) -> Int {
        let shape = try ChunkShape(plaintextSize: plaintext.count, recordsSize: records.count, chunkSize: chunkSize)
        guard let source = records.baseAddress, let destination = plaintext.baseAddress else { return 0 }
        try use(keys)
        var verified = 0
        while verified < shape.count {
            let batch = min(ChunkScratch.maskCount, shape.count - verified)
            let first = source + verified * shape.recordSize
            try makeMasks(first, recordSize: shape.recordSize, count: batch)
            for position in 0..<batch {
                let record = first + position * shape.recordSize
                let size = shape.size(verified)
                let chunkIndex = firstChunkIndex &+ UInt64(verified)
                guard try verifies(record, size: size, chunkIndex: chunkIndex, maskPosition: position) else {
                    return verified
                }
                try decrypt(record, size: size, into: destination + verified * chunkSize)
                verified += 1
            }
        }
        return verified
    }

    private func verifies(
        _ record: UnsafeRawPointer, size: Int, chunkIndex: UInt64, maskPosition: Int
    ) throws(CryptoError) -> Bool {
        let ciphertext = record + ChunkShape.vectorSize
        try authenticate(ciphertext, size: size, chunkIndex: chunkIndex, maskPosition: maskPosition, into: scratch.tag)
        return CRYPTO_memcmp(scratch.tag, ciphertext + size, ChunkShape.tagSize) == 0
    }

    private func decrypt(
        _ record: UnsafeRawPointer, size: Int, into plaintext: UnsafeMutableRawPointer
    ) throws(CryptoError) {
        let residue = size % ChunkShape.blockSize
        let chained = size - residue
        let ciphertext = record + ChunkShape.vectorSize
        if chained > 0 {
            // Once a CBC context has decrypted the IV as if it were ciphertext, it is what the next block is XORed
            // with. That saves 70 ns over EVP_DecryptInit_ex2, of the 1000 that a chunk of 4 KiB takes.
            try chainDecryption.transform(record, into: scratch.block, size: 16)
            try chainDecryption.transform(ciphertext, into: plaintext, size: chained)
        }
        if residue > 0 {
            // The IV precedes the ciphertext, so the block before the residue is right in either case.
            let previous = ciphertext + chained - ChunkShape.blockSize
            try transformResidue(ciphertext + chained, size: residue, previous: previous, into: plaintext + chained)
        }
        blocksDecrypted &+= UInt64((size + ChunkShape.blockSize - 1) / ChunkShape.blockSize)
    }
}
