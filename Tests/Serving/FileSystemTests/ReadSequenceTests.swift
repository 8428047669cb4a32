import Testing

@testable import FileSystem

/// The reads of an open file, and the pieces decrypted ahead of them.
@Suite struct ReadSequenceTests {
    private static let request = 128 << 10
    private let sequence = ReadSequence()

    /// Makes `count` reads in order. Returns how often the thread was asked to decrypt.
    private func read(_ count: Int, from start: Int = 0, cacheSize: Int = 32 << 20) -> Int {
        (0..<count).count { n in
            sequence.add(at: UInt64(start + n * Self.request), count: Self.request, cacheSize: cacheSize)
        }
    }

    /// Decrypts the pieces due. Returns their offsets.
    private func decrypt(size: UInt64 = UInt64(request)) -> [UInt64] {
        var offsets: [UInt64] = []
        while sequence.decryptNext({
            offsets.append($0)
            return $0 + size
        }), offsets.count < 1000 {}
        return offsets
    }

    @Test("nothing is decrypted ahead of the first 256 KiB")
    func begin() {
        #expect(read(1) == 0 && !sequence.isAhead && decrypt().isEmpty)
        #expect(read(1, from: Self.request) == 1 && sequence.isAhead)
        // The 256 KiB after the reads are due.
        #expect(decrypt() == [2, 3].map { UInt64($0 * Self.request) })
    }

    @Test("each piece is decrypted once, whatever its size", arguments: [4096, 100_000, 1 << 20, 3 << 20])
    func once(size: UInt64) {
        var end: UInt64 = 0
        for n in 0..<64 {
            _ = read(1, from: n * Self.request)
            for start in decrypt(size: size) {
                #expect(start >= end)
                end = start + size
            }
        }
        #expect(end >= 64 * UInt64(Self.request))
    }

    @Test("at the end of the file there is no more, and the rest still comes from the cache")
    func endOfFile() {
        _ = read(2)
        #expect(sequence.decryptNext { _ in .max } && !sequence.decryptNext { _ in nil })
        #expect(read(2, from: 2 * Self.request) == 0 && sequence.isAhead && decrypt().isEmpty)
        // Now read from the beginning once more.
        #expect(read(1, from: 8 << 20) == 0 && read(3) > 0 && !decrypt().isEmpty)
    }

    @Test("a file that cannot be read ends it")
    func unreadable() {
        _ = read(2)
        #expect(!sequence.decryptNext { _ in nil } && !sequence.isAhead)
        _ = read(2, from: 2 * Self.request)
        #expect(decrypt().isEmpty)
    }

    @Test("a part that is read again and again is not in order")
    func readAgain() {
        for _ in 0..<100 { _ = read(1) }
        #expect(!sequence.isAhead && decrypt().isEmpty)
    }

    @Test("a piece of before a read elsewhere does not count")
    func elsewhereMeanwhile() {
        _ = read(2, from: 100 << 20)
        _ = read(2, from: (100 << 20) + 2 * Self.request)
        #expect(
            sequence.decryptNext { start in
                _ = read(3)
                return start + 1
            })
        #expect(decrypt().first == UInt64(3 * Self.request))
    }

    @Test("the window grows to 2 MiB, and the thread is asked once for each half of it")
    func growth() {
        var pieces = 0
        var asked = 0
        for n in 0..<64 {
            asked += read(1, from: n * Self.request)
            pieces += decrypt().count
        }
        // All requests but the first two are decrypted, and a window ahead.
        #expect((62 + 8...62 + 16).contains(pieces))
        #expect(asked < 20)
    }

    @Test("a small cache bounds the window, and a smaller one has none", arguments: [(4 << 20, 4), (1 << 20, 0)])
    func smallCache(size: Int, pieces: Int) {
        _ = read(64, cacheSize: size)
        #expect(decrypt().count <= pieces)
        #expect(sequence.isAhead == (pieces > 0))
    }

    @Test("a read elsewhere ends it, and begins anew")
    func elsewhere() {
        _ = read(8)
        #expect(!decrypt().isEmpty)
        #expect(read(1, from: 64 << 20) == 0 && !sequence.isAhead && decrypt().isEmpty)
        #expect(read(3, from: (64 << 20) + Self.request) > 0)
        #expect(decrypt().first == UInt64(64 << 20) + 4 * UInt64(Self.request))
        #expect(read(1, from: 0) == 0 && decrypt().isEmpty)
    }

    @Test("requests that overtake each other are in order")
    func reordered() {
        var asked = 0
        for n in [1, 0, 3, 2, 5, 4] { asked += read(1, from: n * Self.request) }
        #expect(asked > 0 && sequence.isAhead)
        #expect(decrypt().first == UInt64(6 * Self.request))
    }

    @Test("a thread that is always too late gets a pause")
    func late() {
        var pieces = 0
        for n in 0..<100 {
            _ = read(1, from: n * Self.request)
            // The program is always faster than the thread.
            _ = sequence.decryptNext { start in
                pieces += 1
                return start + 1
            }
        }
        #expect(pieces < 10 && !sequence.isAhead)
        // After 32 MiB, the sequence tries again.
        #expect(read(300, from: 100 * Self.request) > 0)
    }
}
