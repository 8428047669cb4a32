/// Where bytes of a source file are in its plaintext. Any thread.
package struct HlsRangeMap: Sendable {
    package struct Piece: Sendable {
        package var ciphertext: Range<UInt64>
        package var plaintext: Range<UInt64>

        package init(ciphertext: Range<UInt64>, plaintext: Range<UInt64>) {
            self.ciphertext = ciphertext
            self.plaintext = plaintext
        }
    }

    private let pieces: [Piece]

    /// - Parameter pieces: all of the file, in ascending order, one behind the other.
    package init(_ pieces: [Piece]) {
        self.pieces = pieces
    }

    /// A whole chain without its padding; a part of one is at the same distance from its beginning.
    /// - Throws: `.malformed` where the file ends before.
    package func plaintext(of ciphertext: Range<UInt64>) throws(ViewError) -> Range<UInt64> {
        guard ciphertext.upperBound <= pieces.last?.ciphertext.upperBound ?? 0 else {
            throw .malformed("a playlist names bytes up to \(ciphertext.upperBound), and the segment ends before")
        }
        let start = offset(ciphertext.lowerBound)
        return start..<max(start, offset(ciphertext.upperBound))
    }

    private func offset(_ ciphertextOffset: UInt64) -> UInt64 {
        // The first piece that ends behind it.
        var low = 0
        var high = pieces.count
        while low < high {
            let middle = (low + high) / 2
            if pieces[middle].ciphertext.upperBound <= ciphertextOffset { low = middle + 1 } else { high = middle }
        }
        guard low < pieces.count else { return pieces.last?.plaintext.upperBound ?? 0 }
        let distance = ciphertextOffset - pieces[low].ciphertext.lowerBound
        return min(pieces[low].plaintext.lowerBound + distance, pieces[low].plaintext.upperBound)
    }
}
