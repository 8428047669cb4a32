/// The encrypted ranges of a file or of a fragment, in ascending order.
struct ProtectedRanges: Equatable, Sendable {
    /// Maximum number of ranges in a fragment, or in a file without fragments: 64 MiB of them.
    static let maximumCount = 1 << 22

    struct Cipher: Equatable, Sendable {
        var key: KeyID
        /// Blocks encrypted and blocks after them that are not. 1 and 0 for no pattern.
        var crypt, skip: Int
        var vector: CipherChain.Vector
    }

    /// Consecutive bytes that are decrypted together, after the pattern. A part of a block at their end is clear.
    struct Bytes: Equatable, Sendable {
        var start: UInt64
        var count: UInt32
        /// The position of the cipher.
        var cipher: UInt32

        var end: UInt64 { start + UInt64(count) }
    }

    private(set) var all: [Bytes] = []
    private(set) var ciphers: [Cipher] = []

    /// Each key once.
    var keys: [KeyID] {
        var seen: Set<KeyID> = []
        return ciphers.map(\.key).filter { seen.insert($0).inserted }
    }

    /// Adds a protected range of a sample.
    ///
    /// - Parameters:
    ///   - vector: of the sample.
    ///   - chain: for cbc1, the offset of the last block before it in the same sample. The range continues its chain.
    mutating func add(
        _ start: UInt64, _ count: UInt32, _ protection: Mp4Protection, _ vector: InitialVector, chain: inout UInt64?
    ) throws(ViewError) {
        // No whole block is no ciphertext.
        guard count >= 16 else { return }
        guard all.count < Self.maximumCount else {
            throw .malformed("more than \(Self.maximumCount) encrypted parts in one fragment or file")
        }
        let cipher = Cipher(
            key: protection.key, crypt: protection.skip == 0 ? 1 : Int(protection.crypt), skip: Int(protection.skip),
            vector: chain.map { .inFile(at: $0) } ?? .bytes(vector))
        if ciphers.last != cipher { ciphers.append(cipher) }
        all.append(Bytes(start: start, count: count, cipher: UInt32(ciphers.count - 1)))
        if protection.scheme == .cbc1 { chain = start + UInt64(count / 16 * 16) - 16 }
    }

    /// Sorts the ranges, and checks that they lie in `bounds` and do not overlap.
    mutating func finish(in bounds: Range<UInt64>) throws(ViewError) {
        let isSorted = zip(all, all.dropFirst()).allSatisfy { $0.start < $1.start }
        if !isSorted { all.sort { $0.start < $1.start } }
        guard let first = all.first, let last = all.last else { return }
        guard first.start >= bounds.lowerBound, last.end <= bounds.upperBound else {
            throw .malformed(
                "samples at \(first.start)-\(last.end) are outside of \(bounds.lowerBound)-\(bounds.upperBound), "
                    + "where their fragment is: the file is cut, or its boxes contradict each other")
        }
        for (one, next) in zip(all, all.dropFirst()) where one.end > next.start {
            throw .malformed("two samples overlap at \(next.start): the boxes contradict each other")
        }
    }

    /// The positions of the ranges that have bytes in `bytes`.
    func overlapping(_ bytes: Range<UInt64>) -> Range<Int> {
        var (first, end) = (0, all.count)
        while first < end {
            let middle = (first + end) / 2
            if all[middle].end > bytes.lowerBound { end = middle } else { first = middle + 1 }
        }
        while end < all.count, all[end].start < bytes.upperBound { end += 1 }
        return first..<end
    }

    func cipher(at position: Int) -> Cipher { ciphers[Int(all[position].cipher)] }

    /// The blocks of a range for bytes of the file, which overlap it.
    func blocks(at position: Int, for wanted: Range<UInt64>) -> PatternBlocks {
        PatternBlocks(all[position], cipher(at: position), for: wanted)
    }
}

/// The encrypted blocks of a range that some bytes need. The encrypted blocks alone are one CBC chain.
struct PatternBlocks {
    private let crypt, skip: Int
    let start: UInt64
    /// Numbers of encrypted blocks, counted from the beginning of the range.
    let numbers: Range<Int>
    /// Those of them that are wanted as a whole: all but the first or the last one at most.
    private(set) var whole: Range<Int>

    /// - Parameter wanted: bytes of the file, which overlap the range.
    init(_ range: ProtectedRanges.Bytes, _ cipher: ProtectedRanges.Cipher, for wanted: Range<UInt64>) {
        (crypt, skip, start) = (cipher.crypt, cipher.skip, range.start)
        let count = Int(range.count / 16)
        let from = Int(max(wanted.lowerBound, start) - start) / 16
        let to = min(Int(min(wanted.upperBound, range.end) - start + 15) / 16, count)
        let first = Self.encrypted(before: from, crypt, skip)
        numbers = first..<max(first, Self.encrypted(before: max(from, to), crypt, skip))
        whole = numbers
        if start < wanted.lowerBound, let first = whole.first, offset(first) < wanted.lowerBound {
            whole = whole.dropFirst()
        }
        if range.end > wanted.upperBound, let last = whole.last, offset(last) + 16 > wanted.upperBound {
            whole = whole.dropLast()
        }
    }

    /// The number of encrypted blocks before a block of the range.
    private static func encrypted(before block: Int, _ crypt: Int, _ skip: Int) -> Int {
        block / (crypt + skip) * crypt + min(block % (crypt + skip), crypt)
    }

    /// The offset in the file of an encrypted block.
    func offset(_ number: Int) -> UInt64 {
        start + UInt64(16 * (number / crypt * (crypt + skip) + number % crypt))
    }

    /// The bytes of the file that hold the blocks, and the encrypted block before them, which is their vector.
    var source: Range<UInt64>? {
        guard let first = numbers.first, let last = numbers.last else { return nil }
        return offset(first > 0 ? first - 1 : 0)..<(offset(last) + 16)
    }

    /// Bytes of the blocks, and of a vector in front of them.
    var gatheredSize: Int { numbers.isEmpty ? 0 : 16 + 16 * numbers.count }

    /// Calls `body` for each run of the whole blocks without a gap: with its distance from the first of them in the file, its
    /// distance among the blocks alone, and its size, in bytes. Does not divide, because a run often has one block only.
    @inline(__always)
    func forEachRun(_ body: (Int, Int, Int) -> Void) {
        let size = 16 * whole.count
        var (distance, done) = (0, 0)
        // The first run can begin inside the pattern.
        var run = skip == 0 ? size : 16 * (crypt - whole.lowerBound % crypt)
        while done < size {
            let count = min(run, size &- done)
            body(distance, done, count)
            done &+= count
            distance &+= run &+ 16 &* skip
            run = 16 &* crypt
        }
    }
}
