/// The position of a file's plaintext: its chains, one after the other. Any thread.
///
/// Every chain of a map lies within the map's source file, and is at least as long as its plaintext.
package struct ChainMap: Sendable {
    /// One chain, and the plaintext offsets of its bytes, which can be empty.
    package struct Piece: Equatable, Sendable {
        package var chain: CipherChain
        package var plaintext: Range<UInt64>
    }

    private enum Pieces: Sendable {
        case stored([Piece])
        case computed(ChunkPieces)
    }

    private let pieces: Pieces
    /// Bytes of plaintext.
    package let length: UInt64

    /// Makes the map of chains with `length` bytes of plaintext each.
    init(_ chains: [(chain: CipherChain, length: UInt64)]) {
        var end: UInt64 = 0
        pieces = .stored(
            chains.map { chain, length in
                defer { end += length }
                return Piece(chain: chain, plaintext: end..<(end + length))
            })
        length = end
    }

    /// Makes the map of a file of equal chunks.
    init(_ chunks: ChunkPieces) {
        pieces = .computed(chunks)
        length = chunks.length
    }

    package var count: UInt64 {
        switch pieces {
        case .stored(let stored): UInt64(stored.count)
        case .computed(let chunks): chunks.count
        }
    }

    /// The piece at `position` of `0..<count`.
    package subscript(position: UInt64) -> Piece {
        switch pieces {
        case .stored(let stored): stored[Int(position)]
        case .computed(let chunks): chunks[position]
        }
    }

    /// Returns the piece with the byte at this offset, or nil past the end of the file.
    package func piece(at plaintextOffset: UInt64) -> Piece? {
        guard plaintextOffset < length else { return nil }
        switch pieces {
        case .computed(let chunks): return chunks[plaintextOffset / chunks.chunkSize]
        case .stored(let stored):
            // The last piece that begins at or before the offset. Earlier, empty ones can begin at the same offset.
            return stored[stored.leadingCount { $0.plaintext.lowerBound <= plaintextOffset } - 1]
        }
    }

    /// Returns the plaintext offsets of a range of ciphertext. A range to the end of a chain does not include its
    /// padding. The chains must be stored, and cover the file in ascending order.
    /// - Throws: `.malformed` if the file ends before the range.
    func plaintext(of ciphertext: Range<UInt64>) throws(ViewError) -> Range<UInt64> {
        guard case .stored(let stored) = pieces,
            ciphertext.upperBound <= stored.last?.chain.ciphertext.upperBound ?? 0
        else {
            throw .malformed("a playlist names bytes up to \(ciphertext.upperBound), and the segment ends before")
        }
        func plaintextOffset(_ ciphertextOffset: UInt64) -> UInt64 {
            let position = stored.leadingCount { $0.chain.ciphertext.upperBound <= ciphertextOffset }
            guard position < stored.count else { return length }
            let (bytes, plaintext) = (stored[position].chain.ciphertext, stored[position].plaintext)
            return min(plaintext.lowerBound + (ciphertextOffset - bytes.lowerBound), plaintext.upperBound)
        }
        let start = plaintextOffset(ciphertext.lowerBound)
        return start..<max(start, plaintextOffset(ciphertext.upperBound))
    }
}

extension Array {
    /// Returns the number of leading elements for which `isBefore` is true. It must be false for all later ones.
    @inline(__always)
    func leadingCount(_ isBefore: (Element) -> Bool) -> Int {
        var range = 0..<count
        while !range.isEmpty {
            let middle = (range.lowerBound + range.upperBound) / 2
            range = isBefore(self[middle]) ? (middle + 1)..<range.upperBound : range.lowerBound..<middle
        }
        return range.lowerBound
    }
}
