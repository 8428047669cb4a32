/// The pieces of a file encrypted in chunks of equal size. They are computed, so a file of 1 TiB takes no memory.
struct ChunkPieces: Sendable {
    /// The largest chunk size that does not overflow with its padding.
    static let largestChunk = UInt64(1) << 62

    /// Plaintext bytes of every chunk except the last.
    let chunkSize: UInt64
    /// Ciphertext bytes of every chunk except the last.
    let stride: UInt64
    let encryption: CipherChain.Encryption
    /// Bytes of the source file.
    let size: UInt64
    /// Bytes of plaintext.
    let length: UInt64
    /// Number of chunks, including the last.
    let count: UInt64

    /// - Parameters:
    ///   - chunkSize: 1...``largestChunk``. A multiple of 16 without padding.
    ///   - lastLength: bytes of plaintext in the last chunk, at most `chunkSize`. An empty file has no last chunk.
    init(chunkSize: UInt64, encryption: CipherChain.Encryption, size: UInt64, lastLength: UInt64) {
        self.chunkSize = chunkSize
        stride = Self.stride(chunkSize, encryption.padding)
        self.encryption = encryption
        self.size = size
        count = size / stride + (size % stride == 0 ? 0 : 1)
        // The products cannot overflow, because a chunk's plaintext is never longer than its ciphertext.
        length = count == 0 ? 0 : (count - 1) * chunkSize + lastLength
    }

    /// Returns the bytes of ciphertext of a chunk. PKCS#7 adds 1 to 16.
    static func stride(_ chunkSize: UInt64, _ padding: CipherChain.Padding) -> UInt64 {
        switch padding {
        case .pkcs7: chunkSize / 16 * 16 + 16
        case .none: chunkSize
        }
    }

    subscript(position: UInt64) -> ChainMap.Piece {
        let start = position * stride
        let plaintext = position * chunkSize
        return ChainMap.Piece(
            chain: CipherChain(ciphertext: start..<min(start + stride, size), encryption: encryption),
            plaintext: plaintext..<min(plaintext + chunkSize, length))
    }
}
