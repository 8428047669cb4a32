import TestSupport
import Testing

@testable import ViewFormats

@Suite("Encrypted ranges of a film") struct ProtectedRangesTests {
    /// Returns a pattern of `crypt` encrypted blocks and `skip` clear ones.
    private func protection(_ crypt: UInt8, _ skip: UInt8) throws -> Mp4Protection {
        let bytes = [0, crypt << 4 | skip, 1, 0] + [UInt8](repeating: 1, count: 16) + [16] + pattern(16)
        let buffer = Mp4Buffer(bytes: bytes, start: 0)
        var fields = Mp4Fields(buffer, 0..<bytes.count)
        return try Mp4Protection(&fields, .cbcs, hasPattern: true, in: buffer)
    }

    private func ranges(_ bytes: [Range<UInt64>], _ protection: Mp4Protection) throws -> ProtectedRanges {
        var ranges = ProtectedRanges()
        var chain: UInt64?
        var budget = Mp4Budget(Mp4Work(), media: 0)
        for range in bytes {
            try ranges.add(range.lowerBound, UInt32(range.count), protection, .zero, chain: &chain, &budget)
        }
        try ranges.finish(in: 0..<1 << 40, &budget)
        return ranges
    }

    @Test("the ranges that a read overlaps are found: none, one, many, close together, and far apart")
    func overlapping() throws {
        let protection = try protection(1, 9)
        var generator = SeededGenerator(seed: 1)
        var wrong: [String] = []
        for round in 0..<400 {
            var bytes: [Range<UInt64>] = []
            var next = UInt64.random(in: 0...100, using: &generator)
            for _ in 0..<(round % 40) {
                // Put many ranges in one part of the file, and few in the others.
                let gap = Int.random(in: 0..<8, using: &generator) == 0 ? 1 << (round % 38) : 20
                next += UInt64.random(in: 0...UInt64(gap), using: &generator)
                let end = next + UInt64.random(in: 16...60, using: &generator)
                bytes.append(next..<end)
                next = end
            }
            let found = try ranges(bytes, protection)
            let edges: [UInt64] = bytes.map(\.lowerBound) + bytes.map(\.upperBound) + [1, next + 1, 1 << 39]
            for start in edges.map({ $0 - min($0, 1) }) + edges + edges.map({ $0 + 1 }) {
                let wanted = start..<(start + UInt64.random(in: 1...200, using: &generator))
                let expected = bytes.indices.filter { bytes[$0].overlaps(wanted) }
                if Array(found.overlapping(wanted)) != expected { wrong.append("\(wanted) of \(bytes)") }
            }
        }
        #expect(wrong.isEmpty, "\(wrong.count) wrong: \(wrong.first ?? "")")
    }

    @Test(
        "each encrypted byte that is wanted is handed out once, with the block before it",
        arguments: [(1, 9), (5, 5), (1, 0), (0, 0), (10, 0), (3, 2)])
    func blocks(crypt: UInt8, skip: UInt8) throws {
        let start: UInt64 = 7
        let range = start..<(start + 16 * 40 + 5)
        let ranges = try ranges([range], protection(crypt, skip))
        let (encrypted, clear) = skip == 0 ? (1, 0) : (UInt64(crypt), UInt64(skip))
        let all = (0..<UInt64(40)).filter { $0 % (encrypted + clear) < encrypted }.map { start + 16 * $0 }
        var wrong: [String] = []
        for lower in range {
            for upper in [
                lower + 1, lower + 15, lower + 16, lower + 17, lower + 170, range.upperBound, range.upperBound + 9,
            ] {
                let wanted = lower..<upper
                let needed = all.filter { ($0..<($0 + 16)).overlaps(wanted) }
                let blocks = ranges.blocks(at: 0, for: wanted)
                var handed: [UInt64] = []
                var isWrong = blocks.count != needed.count
                blocks.forEach { offset, distance in
                    isWrong =
                        isWrong || distance != 16 * handed.count
                        || (offset >= lower && offset + 16 <= upper)
                    handed.append(offset)
                } run: { offset, distance, size in
                    isWrong =
                        isWrong || distance != 16 * handed.count || offset < lower
                        || offset + UInt64(size) > upper
                    handed += stride(from: offset, to: offset + UInt64(size), by: 16)
                }
                let previous = needed.first.flatMap { first in all.last { $0 < first } }
                if let first = needed.first, let last = needed.last {
                    isWrong =
                        isWrong || blocks.previous != previous
                        || blocks.source != (previous ?? first)..<(last + 16)
                } else {
                    isWrong = isWrong || blocks.source != nil
                }
                if isWrong || handed != needed { wrong.append("\(wanted): \(handed), not \(needed)") }
            }
        }
        #expect(wrong.isEmpty, "\(wrong.count) wrong: \(wrong.first ?? "")")
    }
}
