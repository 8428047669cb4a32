/// The part of one chain needed by a read, and the position of its ciphertext.
struct ChainPart {
    /// One pread(2) reads two chains if at most a block of padding lies between them.
    private static let largestGap: UInt64 = 16

    let chain: CipherChain
    /// Plaintext offsets of the file.
    let plaintext: Range<UInt64>
    /// Bytes of the source file: the AES blocks of `plaintext`, and the block before them as their vector, unless they
    /// are the first of the chain.
    let source: Range<UInt64>
    /// True if `source` begins with the vector. Otherwise the chain's own vector is used.
    let hasVector: Bool
    /// Bytes of the first block before `plaintext`.
    let skipped: Int

    /// Makes the part of `piece` from a plaintext offset within it to `end` at most.
    init(_ piece: ChainMap.Piece, from plaintextOffset: UInt64, to end: UInt64) {
        chain = piece.chain
        plaintext = plaintextOffset..<min(end, piece.plaintext.upperBound)
        let from = plaintext.lowerBound - piece.plaintext.lowerBound
        let to = plaintext.upperBound - piece.plaintext.lowerBound
        let base = chain.ciphertext.lowerBound
        guard chain.encryption != nil else {
            source = (base + from)..<(base + to)
            hasVector = false
            skipped = 0
            return
        }
        let firstBlock = from / 16 * 16
        hasVector = firstBlock > 0
        skipped = Int(from - firstBlock)
        source = (base + firstBlock - (hasVector ? 16 : 0))..<(base + (to + 15) / 16 * 16)
    }

    /// Returns true if one pread(2) of at most `capacity` bytes can read this part together with `sources`.
    func follows(_ sources: Range<UInt64>, capacity: Int) -> Bool {
        source.lowerBound >= sources.upperBound && source.lowerBound - sources.upperBound <= Self.largestGap
            && source.upperBound - sources.lowerBound <= UInt64(capacity)
    }
}
