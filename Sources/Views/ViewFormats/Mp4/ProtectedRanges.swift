/// The encrypted ranges of a file or of a fragment, in ascending order.
struct ProtectedRanges: Equatable, Sendable {
    struct Cipher: Equatable, Sendable {
        var vector: CipherChain.Vector
        /// Number of encrypted blocks, and of clear blocks after them. 1 and 0 without a pattern.
        var crypt, skip: UInt8
        /// The position of the key.
        var key: UInt32
    }

    /// Consecutive bytes, decrypted together by the pattern. A part of a block at their end is clear.
    struct Bytes: Equatable, Sendable {
        var start: UInt64
        var count: UInt32
        /// The position of the cipher.
        var cipher: UInt32

        var end: UInt64 { start + UInt64(count) }
    }

    private(set) var all: [Bytes] = []
    private(set) var ciphers: [Cipher] = []
    /// The keys, each once.
    private(set) var keys: [KeyID] = []
    /// Makes room for more ranges at once, because a growing array takes memory twice.
    mutating func reserve(_ count: Int) { all.reserveCapacity(all.count + count) }

    /// Adds a protected range of a sample.
    ///
    /// - Parameters:
    ///   - vector: the sample's vector.
    ///   - chain: for cbc1, the offset of the last block before it in the same sample. The range continues its chain.
    mutating func add(
        _ start: UInt64, _ count: UInt32, _ protection: Mp4Protection, _ vector: InitialVector, chain: inout UInt64?,
        _ budget: inout Mp4Budget
    ) throws(ViewError) {
        // Less than a block is not ciphertext.
        guard count >= 16 else { return }
        try budget.spend(.range)
        let cipher = Cipher(
            vector: chain.map { .inFile(at: $0) } ?? .bytes(vector), crypt: protection.skip == 0 ? 1 : protection.crypt,
            skip: protection.skip, key: try position(of: protection.key, &budget))
        if ciphers.last != cipher {
            try budget.spend(.cipher)
            ciphers.append(cipher)
        }
        all.append(Bytes(start: start, count: count, cipher: UInt32(ciphers.count - 1)))
        if protection.scheme == .cbc1 { chain = start + UInt64(count / 16 * 16) - 16 }
    }

    private mutating func position(of key: KeyID, _ budget: inout Mp4Budget) throws(ViewError) -> UInt32 {
        if let last = ciphers.last, keys[Int(last.key)] == key { return last.key }
        if let known = keys.firstIndex(of: key) { return UInt32(known) }
        try budget.spend(.key)
        keys.append(key)
        return UInt32(keys.count - 1)
    }

    /// Sorts the ranges, and checks that they lie in `bounds` and do not overlap.
    mutating func finish(in bounds: Range<UInt64>, _ budget: inout Mp4Budget) throws(ViewError) {
        let isSorted = zip(all, all.dropFirst()).allSatisfy { $0.start < $1.start }
        if !isSorted { try sort(&budget) }
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

    /// Bytes of memory.
    var memory: Int {
        all.count * MemoryLayout<Bytes>.stride + ciphers.count * MemoryLayout<Cipher>.stride
    }

    private mutating func sort(_ budget: inout Mp4Budget) throws(ViewError) {
        // The library's sort merges, so it needs memory.
        try budget.reserve(all.count * MemoryLayout<Bytes>.stride / 2)
        do {
            try all.sort { one, other in
                try budget.step()
                return one.start < other.start
            }
        } catch let error as ViewError { throw error } catch { preconditionFailure("internal error: \(error)") }
    }

    /// Returns the positions of the ranges with bytes in `bytes`. Call this after `finish`.
    func overlapping(_ bytes: Range<UInt64>) -> Range<Int> {
        let first = all.leadingCount { $0.end <= bytes.lowerBound }
        var end = first
        while end < all.count, all[end].start < bytes.upperBound { end += 1 }
        return first..<end
    }

    /// Shares the storage of another fragment's equal ciphers, so that a read finds them in the processor's caches.
    mutating func shareCiphers(of other: ProtectedRanges) {
        if ciphers == other.ciphers { ciphers = other.ciphers }
    }

    func cipher(at position: Int) -> Cipher { ciphers[Int(all[position].cipher)] }

    /// Returns the blocks of a range for bytes of the file, which overlap it.
    func blocks(at position: Int, for wanted: Range<UInt64>) -> PatternBlocks {
        PatternBlocks(all[position], cipher(at: position), for: wanted)
    }
}

/// The encrypted blocks of a range needed for some bytes. The encrypted blocks alone are one CBC chain.
struct PatternBlocks {
    private let crypt, skip: Int
    /// The first block's number among the encrypted ones of its pattern.
    private let phase: Int
    /// The number of encrypted blocks.
    let count: Int
    /// Offsets in the file of the first and the last block, unless there are none.
    let first, last: UInt64
    /// The offset in the file of the encrypted block before the first one, which is its vector. Nil at the beginning of
    /// the range.
    let previous: UInt64?
    /// True if the first and the last block are wanted as a whole, as the others are.
    let isFirstWhole, isLastWhole: Bool

    /// - Parameter wanted: bytes of the file, which overlap the range.
    init(_ range: ProtectedRanges.Bytes, _ cipher: ProtectedRanges.Cipher, for wanted: Range<UInt64>) {
        (crypt, skip) = (Int(cipher.crypt), Int(cipher.skip))
        let from = Int(max(wanted.lowerBound, range.start) - range.start) / 16
        let to = min(Int(min(wanted.upperBound, range.end) - range.start + 15) / 16, Int(range.count / 16))
        let period = crypt + skip
        var (turn, number) = from.quotientAndRemainder(dividingBy: period)
        if number >= crypt { (turn, number) = (turn + 1, 0) }
        let (endTurn, endNumber) = max(from, to).quotientAndRemainder(dividingBy: period)
        phase = number
        count = max(0, (endTurn - turn) * crypt + min(endNumber, crypt) - number)
        first = range.start + UInt64(16 * (turn * period + number))
        let end = endTurn * period + (endNumber > 0 ? min(endNumber, crypt) : -skip)
        last = count > 0 ? range.start + UInt64(16 * (end - 1)) : first
        previous = turn > 0 || number > 0 ? first - UInt64(16 * (number > 0 ? 1 : 1 + skip)) : nil
        isFirstWhole = first >= wanted.lowerBound
        isLastWhole = last + 16 <= wanted.upperBound
    }

    /// The bytes of the file with the blocks, and with the encrypted block before them.
    var source: Range<UInt64>? { count > 0 ? (previous ?? first)..<(last + 16) : nil }

    /// Bytes of the blocks, and of a vector in front of them.
    var gatheredSize: Int { count > 0 ? 16 + 16 * count : 0 }

    /// Calls `edge` for each partly wanted block, with its offset in the file, and its distance among the blocks alone.
    /// Calls `run` for each run of whole blocks without a gap, with the same, and its size in bytes. Does not divide,
    /// because a run often has one block only.
    @inline(__always)
    func forEach(edge: (UInt64, Int) -> Void, run: (UInt64, Int, Int) -> Void) {
        guard count > 0 else { return }
        var (offset, done) = (first, 0)
        // The first run can begin inside the pattern.
        var left = crypt &- phase
        if !isFirstWhole {
            edge(first, 0)
            left = left > 1 ? left - 1 : crypt
            (offset, done) = (first + UInt64(16 * (phase + 1 < crypt ? 1 : 1 + skip)), 16)
        }
        let end = 16 * (isLastWhole ? count : count - 1)
        if skip == 0 { left = count }
        while done < end {
            let size = min(16 &* left, end &- done)
            run(offset, done, size)
            done &+= size
            offset &+= UInt64(truncatingIfNeeded: size &+ 16 &* skip)
            left = crypt
        }
        if !isLastWhole, count > 1 || isFirstWhole { edge(last, 16 * (count - 1)) }
    }
}
