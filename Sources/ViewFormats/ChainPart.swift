/// A part of one chain that a read takes, and where its ciphertext is.
struct ChainPart {
    /// Between the chains that one pread(2) takes may lie a block of padding that nothing asks for.
    private static let largestGap: UInt64 = 16

    let chain: CipherChain
    /// Plaintext offsets of the file.
    let plaintext: Range<UInt64>
    /// Bytes to read from the source file: those of the AES blocks that cover `plaintext`, and the vector where it is
    /// the 16 bytes before them.
    let source: Range<UInt64>
    /// Whether `source` begins with the vector.
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
        guard let encryption = chain.encryption else {
            source = (base + from)..<(base + to)
            hasVector = false
            skipped = 0
            return
        }
        let firstBlock = from / 16 * 16
        if firstBlock > 0 {
            hasVector = true
        } else if case .inFile(let offset) = encryption.vector {
            hasVector = offset + 16 == base
        } else {
            hasVector = false
        }
        skipped = Int(from - firstBlock)
        source = (base + firstBlock - (hasVector ? 16 : 0))..<(base + (to + 15) / 16 * 16)
    }

    /// Whether one pread(2) of at most `capacity` bytes takes this one as well as those in `sources`.
    func follows(_ sources: Range<UInt64>, capacity: Int) -> Bool {
        source.lowerBound >= sources.upperBound && source.lowerBound - sources.upperBound <= Self.largestGap
            && source.upperBound - sources.lowerBound <= UInt64(capacity)
    }
}
