/// The layout of a run of chunks in memory: all but the last full, plaintexts contiguous and records contiguous.
struct ChunkShape {
    /// The size of IV and tag around a chunk's ciphertext (file format: "A file").
    static let recordOverhead = 32
    static let vectorSize = 16
    static let tagSize = 16
    static let blockSize = 16
    private static let maximumChunkSize = 1 << 20

    let chunkSize, count, lastSize: Int

    var recordSize: Int { chunkSize + Self.recordOverhead }

    /// Throws `.invalidInput` if the sizes are not those of a run of chunks and its records.
    init(plaintextSize: Int, recordsSize: Int, chunkSize: Int) throws(CryptoError) {
        guard chunkSize > 0, chunkSize <= Self.maximumChunkSize, chunkSize % Self.blockSize == 0 else {
            throw .invalidInput("a chunk size of \(chunkSize)")
        }
        let count = plaintextSize / chunkSize + (plaintextSize % chunkSize == 0 ? 0 : 1)
        guard recordsSize >= plaintextSize, recordsSize - plaintextSize == count * Self.recordOverhead else {
            throw .invalidInput("\(recordsSize) bytes of records for \(plaintextSize) bytes in chunks of \(chunkSize)")
        }
        self.chunkSize = chunkSize
        self.count = count
        lastSize = count == 0 ? 0 : plaintextSize - (count - 1) * chunkSize
    }

    /// Returns the plaintext and ciphertext size of a chunk of this run.
    @inline(__always)
    func size(_ position: Int) -> Int { position == count - 1 ? lastSize : chunkSize }
}
