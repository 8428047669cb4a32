internal import COpenSSL

extension ChunkCipher {
    /// Encrypts contiguous chunks into contiguous records with fresh IVs.
    /// - Parameters:
    ///   - plaintext: all chunks but the last of `chunkSize` bytes.
    ///   - records: `plaintext.count` and 32 bytes a chunk.
    package func seal(
        _ plaintext: UnsafeRawBufferPointer, firstChunkIndex: UInt64, chunkSize: Int, keys: ChunkKeys,
        into records: UnsafeMutableRawBufferPointer
    ) throws(CryptoError) {
        try use(keys)
        let chunks = (plaintext.count + chunkSize - 1) / chunkSize
        guard records.count == plaintext.count + chunks * Self.overhead else {
            throw .invalidInput("\(records.count) bytes for \(chunks) records of \(plaintext.count) bytes")
        }
        guard let input = plaintext.baseAddress?.assumingMemoryBound(to: UInt8.self),
            let output = records.baseAddress?.assumingMemoryBound(to: UInt8.self)
        else { return }
        for chunk in 0..<chunks { try drawIV(into: output + chunk * (chunkSize + Self.overhead)) }
        var chunk = 0
        while chunk < chunks {
            let whole = min(Self.lanes, (plaintext.count - chunk * chunkSize) / chunkSize)
            let from = input + chunk * chunkSize
            let to = output + chunk * (chunkSize + Self.overhead)
            if whole > 0 {
                try encryptLanes(from, stride: chunkSize, into: to, lanes: whole, size: chunkSize)
                chunk += whole
            } else {
                // The last chunk, shorter than the others.
                let n = plaintext.count - chunk * chunkSize
                try encryptLanes(from, stride: chunkSize, into: to, lanes: 1, size: n & ~15)
                let full = n & ~15
                if n > full {
                    let ciphertext = to + Self.ivSize
                    try maskResidue(
                        ciphertext, full, n - full, iv: to, from: from + full, into: ciphertext + full)
                }
                chunk += 1
            }
        }
        for chunk in 0..<chunks {
            let record = output + chunk * (chunkSize + Self.overhead)
            let n = min(chunkSize, plaintext.count - chunk * chunkSize)
            try computeTag(record, n, index: firstChunkIndex + UInt64(chunk), into: record + Self.ivSize + n)
        }
    }

    /// CBC over `size` bytes of each of `lanes` chunks in lockstep: one ECB call a step over all lanes' blocks.
    private func encryptLanes(
        _ input: UnsafePointer<UInt8>, stride: Int, into output: UnsafeMutablePointer<UInt8>, lanes: Int, size: Int
    ) throws(CryptoError) {
        typealias Block = SIMD2<UInt64>
        let source = UnsafeRawPointer(input)
        let target = UnsafeMutableRawPointer(output)
        let recordStride = stride + Self.overhead
        let blocks = laneBlocks.assumingMemoryBound(to: UInt8.self)
        for lane in 0..<lanes {
            // The chain begins with the IV, at the record's start.
            let iv = target.loadUnaligned(fromByteOffset: lane * recordStride, as: Block.self)
            laneBlocks.storeBytes(of: iv, toByteOffset: lane * 16, as: Block.self)
        }
        var position = 0
        var written: Int32 = 0
        while position < size {
            for lane in 0..<lanes {
                let previous = laneBlocks.load(fromByteOffset: lane * 16, as: Block.self)
                let plain = source.loadUnaligned(fromByteOffset: lane * stride + position, as: Block.self)
                laneBlocks.storeBytes(of: previous ^ plain, toByteOffset: lane * 16, as: Block.self)
            }
            guard EVP_EncryptUpdate(encryption, blocks, &written, blocks, Int32(lanes * 16)) == 1 else {
                throw .library(operation: "EVP_EncryptUpdate")
            }
            for lane in 0..<lanes {
                let cipher = laneBlocks.load(fromByteOffset: lane * 16, as: Block.self)
                target.storeBytes(
                    of: cipher, toByteOffset: lane * recordStride + Self.ivSize + position, as: Block.self)
            }
            position += 16
        }
    }
}
