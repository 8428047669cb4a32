/// A part of one chain that a read takes, and where its ciphertext is.
struct ChainPart {
    /// Between the chains that one pread(2) takes may lie a block of padding that nothing asks for.
    private static let largestGap: UInt64 = 16

    let chain: CipherChain
    /// Plaintext offsets of the file.
    let plaintext: Range<UInt64>
    /// Bytes to read from the source file: those of the AES blocks that cover `plaintext`, and of the block before them,
    /// which is their vector, unless they are the chain's first.
    let source: Range<UInt64>
    /// Whether `source` begins with the vector; otherwise it is the chain's own.
    let hasVector: Bool
    /// How many bytes of the first block are not wanted.
    let skipped: Int

    /// The part of `piece` from a plaintext offset within it on, to `end` at most.
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

    /// Whether one pread(2) of at most `capacity` bytes takes this one as well as those in `sources`.
    func follows(_ sources: Range<UInt64>, capacity: Int) -> Bool {
        source.lowerBound >= sources.upperBound && source.lowerBound - sources.upperBound <= Self.largestGap
            && source.upperBound - sources.lowerBound <= UInt64(capacity)
    }
}
