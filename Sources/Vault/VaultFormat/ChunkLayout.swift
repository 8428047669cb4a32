/// The positions of a file's chunks: every conversion between plaintext and ciphertext offsets (FileFormat, Sizes).
///
/// Pure arithmetic over sizes, which may be hostile: it never traps, and a result over 64 bits becomes `UInt64.max`.
package struct ChunkLayout: Sendable, Equatable {
    /// Bytes before the first chunk record.
    package static let headerSize = 128
    /// Bytes by which a chunk record is longer than its plaintext: IV 16 and tag 16.
    package static let recordOverhead = 32
    /// The range of chunk sizes. Only its powers of two are valid.
    package static let chunkSizes = 4096...1_048_576

    /// Plaintext bytes in every chunk but the last: a power of two.
    package let chunkSize: Int

    package var recordSize: Int { chunkSize &+ Self.recordOverhead }

    /// Makes a layout for a chunk size accepted by `isValid(chunkSize:)`. Traps for another.
    package init(chunkSize: Int) {
        precondition(Self.isValid(chunkSize: chunkSize), "internal error: chunk size \(chunkSize)")
        self.chunkSize = chunkSize
    }

    package static func isValid(chunkSize: Int) -> Bool {
        chunkSizes.contains(chunkSize) && chunkSize & (chunkSize - 1) == 0
    }

    /// Returns the size of the backing file of a file with `length` bytes of plaintext.
    package func backingSize(ofPlaintextLength length: UInt64) -> UInt64 {
        let remainder = length & (chunk - 1)
        let fullRecords = recordOffset(ofChunk: chunkIndex(ofPlaintextOffset: length))
        guard remainder > 0 else { return fullRecords }
        return saturatingSum(fullRecords, remainder + UInt64(Self.recordOverhead))
    }

    /// Returns the plaintext length of a backing file of `size` bytes: 0 if it is shorter than a header. A trailing
    /// fragment of 1…32 bytes adds nothing, because it has no room for ciphertext.
    package func plaintextLength(ofBackingSize size: UInt64) -> UInt64 {
        guard size > UInt64(Self.headerSize) else { return 0 }
        let (records, fragment) = (size - UInt64(Self.headerSize)).quotientAndRemainder(dividingBy: UInt64(recordSize))
        let overhead = UInt64(Self.recordOverhead)
        return records * chunk + (fragment > overhead ? fragment - overhead : 0)
    }

    /// Returns the index of the chunk with the byte at `offset`.
    package func chunkIndex(ofPlaintextOffset offset: UInt64) -> UInt64 {
        offset >> UInt64(chunkSize.trailingZeroBitCount)
    }

    /// Returns the plaintext offset at which chunk `index` starts.
    package func plaintextOffset(ofChunk index: UInt64) -> UInt64 { saturatingProduct(index, chunk) }

    /// Returns the offset in the backing file at which the record of chunk `index` starts.
    package func recordOffset(ofChunk index: UInt64) -> UInt64 {
        saturatingSum(UInt64(Self.headerSize), saturatingProduct(index, UInt64(recordSize)))
    }

    /// Returns how many bytes of plaintext chunk `index` has in a file of `length` bytes: 0 past the end.
    package func plaintextSize(ofChunk index: UInt64, length: UInt64) -> Int {
        let start = plaintextOffset(ofChunk: index)
        guard start < length else { return 0 }
        return Int(min(chunk, length - start))
    }

    /// Returns how many chunks a file of `length` bytes has, a partial last one included.
    package func chunkCount(ofLength length: UInt64) -> UInt64 {
        chunkIndex(ofPlaintextOffset: length) + (length & (chunk - 1) == 0 ? 0 : 1)
    }

    /// Returns the index of the last chunk of a file of `length` bytes, or nil if that chunk is full.
    package func partialChunk(of length: UInt64) -> UInt64? {
        length & (chunk - 1) == 0 ? nil : chunkIndex(ofPlaintextOffset: length)
    }

    private var chunk: UInt64 { UInt64(chunkSize) }
}

private func saturatingSum(_ a: UInt64, _ b: UInt64) -> UInt64 {
    let (sum, overflow) = a.addingReportingOverflow(b)
    return overflow ? .max : sum
}

private func saturatingProduct(_ a: UInt64, _ b: UInt64) -> UInt64 {
    let (product, overflow) = a.multipliedReportingOverflow(by: b)
    return overflow ? .max : product
}
