/// The position of a file's plaintext: its chains, one behind the other. Any thread.
///
/// Every chain of a map lies within the source file of the map, and is at least as long as its plaintext.
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
    /// One more than the highest key number of the chains.
    let keyCount: Int

    /// The map of chains with `length` bytes of plaintext each.
    ///
    /// Throws `.malformed` if a chain is not within the source file or cannot have this plaintext, or if the sum is out
    /// of range.
    init(_ chains: [(chain: CipherChain, length: UInt64)], in source: SourceFile) throws(ViewError) {
        var stored: [Piece] = []
        stored.reserveCapacity(chains.count)
        var end: UInt64 = 0
        var keyCount = 0
        for (chain, length) in chains {
            try chain.check(length: length, size: source.size)
            let (next, overflow) = end.addingReportingOverflow(length)
            guard !overflow, next <= UInt64(Int64.max) else { throw .malformed("the parts are longer than any file") }
            stored.append(Piece(chain: chain, plaintext: end..<next))
            end = next
            if let key = chain.encryption?.key { keyCount = max(keyCount, key + 1) }
        }
        pieces = .stored(stored)
        length = end
        self.keyCount = keyCount
    }

    /// The map of a file of equal chunks.
    init(_ chunks: ChunkPieces) {
        pieces = .computed(chunks)
        length = chunks.length
        keyCount = chunks.encryption.key + 1
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

    /// The piece with the byte at this offset. Nil beyond the end of the file.
    package func piece(at plaintextOffset: UInt64) -> Piece? {
        guard plaintextOffset < length else { return nil }
        switch pieces {
        case .computed(let chunks):
            return chunks[plaintextOffset / chunks.chunkSize]
        case .stored(let stored):
            // The last piece that does not begin behind the offset. Empty pieces can begin at the same offset before it.
            var low = 0
            var high = stored.count
            while high - low > 1 {
                let middle = (low + high) / 2
                if stored[middle].plaintext.lowerBound <= plaintextOffset { low = middle } else { high = middle }
            }
            return stored[low]
        }
    }

    /// The plaintext offsets of a range of ciphertext. A range to the end of a chain does not include its padding. The
    /// chains must cover the file, in ascending order.
    /// - Throws: `.malformed` if the file ends before the range.
    func plaintext(of ciphertext: Range<UInt64>) throws(ViewError) -> Range<UInt64> {
        guard ciphertext.upperBound <= (count == 0 ? 0 : self[count - 1].chain.ciphertext.upperBound) else {
            throw .malformed("a playlist names bytes up to \(ciphertext.upperBound), and the segment ends before")
        }
        let start = plaintextOffset(of: ciphertext.lowerBound)
        return start..<max(start, plaintextOffset(of: ciphertext.upperBound))
    }

    private func plaintextOffset(of ciphertextOffset: UInt64) -> UInt64 {
        // The first piece that ends behind the offset.
        var low: UInt64 = 0
        var high = count
        while low < high {
            let middle = (low + high) / 2
            if self[middle].chain.ciphertext.upperBound <= ciphertextOffset { low = middle + 1 } else { high = middle }
        }
        guard low < count else { return length }
        let distance = ciphertextOffset - self[low].chain.ciphertext.lowerBound
        return min(self[low].plaintext.lowerBound + distance, self[low].plaintext.upperBound)
    }
}

extension CipherChain {
    /// Throws `.malformed` if this chain is not within `size` bytes, or cannot have `length` bytes of plaintext.
    fileprivate func check(length: UInt64, size: UInt64) throws(ViewError) {
        let count = ciphertext.upperBound - ciphertext.lowerBound
        let hasPlaintext: Bool
        if let encryption {
            hasPlaintext = count % 16 == 0 && length <= count && encryption.key >= 0
        } else {
            hasPlaintext = length == count
        }
        guard hasPlaintext else { throw .malformed("\(length) bytes of plaintext in \(count) of ciphertext") }
        var last = ciphertext.upperBound
        if case .inFile(let start)? = encryption?.vector {
            let (end, overflow) = start.addingReportingOverflow(16)
            last = overflow ? .max : max(last, end)
        }
        guard last <= size else { throw .malformed("a part ends at byte \(last) of a file of \(size)") }
    }
}
