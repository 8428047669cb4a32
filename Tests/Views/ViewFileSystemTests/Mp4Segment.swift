import TestSupport

/// A media segment of fragmented MP4 with clear or encrypted samples (ISO/IEC 14496-12 and 23001-7, scheme cbcs).
struct Mp4Segment {
    private struct Protection {
        var isProtected = false
        var crypt = 0
        var skip = 0
        var vectorSize = 0
        var identifier: [UInt8] = []
        var vector: [UInt8] = []
    }

    private struct Track {
        /// Nil for a clear sample entry.
        var entries: [Protection?] = []
        var groups: [Protection] = []
        var entry = 1
        var size = 0
    }

    private struct Box {
        var type: String
        var start: Int
        var body: Range<Int>
    }

    /// Bytes with boxes in them.
    private struct Boxes {
        let bytes: [UInt8]
        var isCut = false

        func integer(_ position: Int, _ size: Int = 4) throws -> Int {
            guard position + size <= bytes.count else { throw TestFailure("a box is cut") }
            var result = 0
            for offset in position..<(position + size) { result = result << 8 | Int(bytes[offset]) }
            return result
        }

        func type(_ position: Int) throws -> String {
            guard position + 4 <= bytes.count else { throw TestFailure("a box is cut") }
            return String(decoding: bytes[position..<(position + 4)], as: UTF8.self)
        }

        func all(_ range: Range<Int>? = nil) throws -> [Box] {
            let range = range ?? 0..<bytes.count
            var result: [Box] = []
            var next = range.lowerBound
            while next < range.upperBound {
                var (size, header) = (try integer(next), 8)
                if size == 1 { (size, header) = (try integer(next + 8, 8), 16) }
                if size == 0 { size = range.upperBound - next }
                if isCut { size = min(size, range.upperBound - next) }
                guard size >= header, next + size <= range.upperBound else { throw TestFailure("no boxes at \(next)") }
                result.append(Box(type: try type(next + 4), start: next, body: (next + header)..<(next + size)))
                next += size
            }
            return result
        }

        func one(_ path: String..., in range: Range<Int>) throws -> Box {
            var found = Box(type: "", start: 0, body: range)
            for type in path {
                guard let box = try all(found.body).first(where: { $0.type == type }) else {
                    throw TestFailure("no \(type)")
                }
                found = box
            }
            return found
        }

        /// Reads the common part of tenc and seig, from the pattern on.
        func protection(_ position: Int) throws -> Protection {
            var result = Protection(isProtected: try integer(position + 1, 1) == 1)
            let pattern = try integer(position, 1)
            (result.crypt, result.skip) = (pattern >> 4, pattern & 15)
            result.vectorSize = try integer(position + 2, 1)
            result.identifier = Array(bytes[(position + 3)..<(position + 19)])
            if result.isProtected, result.vectorSize == 0 {
                let size = try integer(position + 19, 1)
                guard position + 20 + size <= bytes.count else { throw TestFailure("a vector is cut") }
                result.vector = Array(bytes[(position + 20)..<(position + 20 + size)])
                result.vector += [UInt8](repeating: 0, count: max(16 - size, 0))
            }
            return result
        }

        func groups(_ boxes: [Box]) throws -> [Protection] {
            guard let sgpd = try boxes.first(where: { try $0.type == "sgpd" && type($0.body.lowerBound + 4) == "seig" })
            else { return [] }
            let size = try integer(sgpd.body.lowerBound + 8)
            return try (0..<integer(sgpd.body.lowerBound + 12)).map {
                try protection(sgpd.body.lowerBound + 16 + $0 * size + 1)
            }
        }
    }

    private let boxes: Boxes
    private let top: [Box]
    private let tracks: [Int: Track]

    static func isOne(_ bytes: [UInt8]) -> Bool {
        (try? Boxes(bytes: bytes, isCut: true).all())?.contains { $0.type == "moof" } ?? false
    }

    /// - Parameters:
    ///   - initial: the init segment, used unless the segment has its own.
    ///   - isCut: true for a range that may end in the samples.
    init(_ bytes: [UInt8], initial: [UInt8]?, isCut: Bool) throws {
        boxes = Boxes(bytes: bytes, isCut: isCut)
        top = try boxes.all()
        if top.contains(where: { $0.type == "moov" }) {
            tracks = try Self.tracks(boxes, 0..<bytes.count)
        } else if let initial {
            tracks = try Self.tracks(Boxes(bytes: initial), 0..<initial.count)
        } else {
            throw TestFailure("no init segment")
        }
        guard top.contains(where: { $0.type == "moof" }) else { throw TestFailure("no fragment") }
    }

    private static func tracks(_ boxes: Boxes, _ range: Range<Int>) throws -> [Int: Track] {
        let moov = try boxes.all(boxes.one("moov", in: range).body)
        var tracks: [Int: Track] = [:]
        for trak in moov where trak.type == "trak" {
            let header = try boxes.one("tkhd", in: trak.body).body.lowerBound
            let number = try boxes.integer(header + (boxes.integer(header, 1) == 1 ? 20 : 12))
            let stbl = try boxes.one("mdia", "minf", "stbl", in: trak.body).body
            let stsd = try boxes.one("stsd", in: stbl).body
            var track = Track(groups: try boxes.groups(boxes.all(stbl)))
            for entry in try boxes.all((stsd.lowerBound + 8)..<stsd.upperBound) {
                guard entry.type == "encv" || entry.type == "enca" else {
                    track.entries.append(nil)
                    continue
                }
                let fields = entry.body.lowerBound + (entry.type == "encv" ? 78 : 28)
                let sinf = try boxes.one("sinf", in: fields..<entry.body.upperBound).body
                let scheme = try boxes.type(boxes.one("schm", in: sinf).body.lowerBound + 4)
                guard scheme == "cbcs" else { throw TestFailure("the scheme \(scheme)") }
                track.entries.append(
                    try boxes.protection(boxes.one("schi", "tenc", in: sinf).body.lowerBound + 5))
            }
            tracks[number] = track
        }
        for trex in try moov.filter({ $0.type == "mvex" }).flatMap({ try boxes.all($0.body) }) where trex.type == "trex"
        {
            let number = try boxes.integer(trex.body.lowerBound + 4)
            tracks[number]?.entry = try boxes.integer(trex.body.lowerBound + 8)
            tracks[number]?.size = try boxes.integer(trex.body.lowerBound + 16)
        }
        return tracks
    }

    /// Returns the segment with plaintext in its samples.
    /// - Parameter key: returns the key of an identifier.
    func decrypted(_ key: ([UInt8]) throws -> [UInt8]) throws -> [UInt8] {
        var result = boxes.bytes
        for moof in top where moof.type == "moof" {
            for traf in try boxes.all(moof.body) where traf.type == "traf" {
                try decrypt(traf, moof.start, key, in: &result)
            }
        }
        return result
    }

    private func decrypt(
        _ traf: Box, _ moof: Int, _ key: ([UInt8]) throws -> [UInt8], in result: inout [UInt8]
    ) throws {
        let inside = try boxes.all(traf.body)
        let tfhd = try boxes.one("tfhd", in: traf.body).body.lowerBound
        guard let track = tracks[try boxes.integer(tfhd + 4)] else { throw TestFailure("a track without a moov") }
        let flags = try boxes.integer(tfhd + 1, 3)
        var next = tfhd + 8
        func field(_ flag: Int, _ size: Int = 4) throws -> Int? {
            guard flags & flag != 0 else { return nil }
            defer { next += size }
            return try boxes.integer(next, size)
        }
        let base = try field(1, 8) ?? moof
        let entry = try field(2) ?? track.entry
        _ = try field(8)
        let size = try field(16) ?? track.size
        guard track.entries.indices.contains(entry - 1) else { throw TestFailure("no sample entry \(entry)") }
        let samples = try samples(inside.filter { $0.type == "trun" }, base, size)
        let groups = try members(inside, track, count: samples.count)
        let local = groups.map { $0 ?? track.entries[entry - 1] }
        let isProtected = local.contains { $0?.isProtected == true }
        if !isProtected, groups.allSatisfy({ $0 == nil }), track.entries.allSatisfy({ $0 == nil }),
            inside.contains(where: { ["senc", "saiz"].contains($0.type) })
        {
            throw TestFailure("sample information without encryption")
        }
        if !isProtected { return }
        var information = try information(inside, base, local.lazy.compactMap { $0 }.first { $0.isProtected })
        for (sample, protection) in zip(samples, local) {
            guard let protection, protection.isProtected else { continue }
            var vector = protection.vector
            if protection.vectorSize > 0 {
                guard let start = information?.next, start + protection.vectorSize <= boxes.bytes.count else {
                    throw TestFailure("no vector")
                }
                vector = Array(boxes.bytes[start..<(start + protection.vectorSize)])
                vector += [UInt8](repeating: 0, count: 16 - protection.vectorSize)
                information?.next = start + protection.vectorSize
            }
            var parts = [(0, sample.count)]
            if let found = information, found.hasParts {
                let count = try boxes.integer(found.next, 2)
                parts = try (0..<count).map { number in
                    let part = found.next + 2 + 6 * number
                    return (try boxes.integer(part, 2), try boxes.integer(part + 2))
                }
                information?.next = found.next + 2 + 6 * count
            }
            // A frame's range may leave out its last samples.
            guard sample.upperBound <= result.count else {
                if boxes.isCut { continue }
                throw TestFailure("a sample is cut")
            }
            var start = sample.lowerBound
            for (clear, count) in parts {
                start += clear
                guard start + count <= sample.upperBound else { throw TestFailure("a part is longer than its sample") }
                try Self.decrypt(start..<(start + count), protection, vector, try key(protection.identifier), &result)
                start += count
            }
        }
    }

    /// Decrypts the blocks chosen by the pattern, which form one chain.
    private static func decrypt(
        _ range: Range<Int>, _ protection: Protection, _ vector: [UInt8], _ key: [UInt8], _ result: inout [UInt8]
    ) throws {
        let period = protection.skip == 0 ? 1 : protection.crypt + protection.skip
        let crypt = protection.skip == 0 ? 1 : protection.crypt
        let blocks = (0..<(range.count / 16)).filter { $0 % period < crypt }.map { range.lowerBound + 16 * $0 }
        let plaintext = try cbc(blocks.flatMap { result[$0..<($0 + 16)] }, key: key, vector: vector, encrypts: false)
        for (number, block) in blocks.enumerated() {
            result.replaceSubrange(block..<(block + 16), with: plaintext[(16 * number)..<(16 * number + 16)])
        }
    }

    private func samples(_ runs: [Box], _ base: Int, _ size: Int) throws -> [Range<Int>] {
        var samples: [Range<Int>] = []
        var start = base
        for trun in runs {
            let flags = try boxes.integer(trun.body.lowerBound + 1, 3)
            let count = try boxes.integer(trun.body.lowerBound + 4)
            var next = trun.body.lowerBound + 8
            if flags & 1 != 0 {
                start = base + Int(Int32(truncatingIfNeeded: try boxes.integer(next)))
                next += 4
            }
            if flags & 4 != 0 { next += 4 }
            for _ in 0..<count {
                if flags & 0x100 != 0 { next += 4 }
                var own = size
                if flags & 0x200 != 0 {
                    own = try boxes.integer(next)
                    next += 4
                }
                next += (flags & 0x400 != 0 ? 4 : 0) + (flags & 0x800 != 0 ? 4 : 0)
                samples.append(start..<(start + own))
                start += own
            }
        }
        return samples
    }

    /// Returns the group of each sample, or nil for a sample without one.
    private func members(_ inside: [Box], _ track: Track, count: Int) throws -> [Protection?] {
        var members: [Protection?] = []
        let local = try boxes.groups(inside)
        for sbgp in inside where sbgp.type == "sbgp" {
            let start = sbgp.body.lowerBound
            guard try boxes.type(start + 4) == "seig" else { continue }
            for number in try 0..<boxes.integer(start + 8) {
                let count = try boxes.integer(start + 12 + 8 * number)
                let index = try boxes.integer(start + 16 + 8 * number)
                let groups = index > 0x10000 ? local : track.groups
                let position = index > 0x10000 ? index - 0x10001 : index - 1
                guard index == 0 || groups.indices.contains(position) else { throw TestFailure("no group \(index)") }
                members += [Protection?](repeating: index == 0 ? nil : groups[position], count: count)
            }
        }
        return members + [Protection?](repeating: nil, count: max(count - members.count, 0))
    }

    /// Returns the position of the samples' vectors and parts, or nil if there are none.
    private func information(
        _ inside: [Box], _ base: Int, _ protection: Protection?
    ) throws -> (next: Int, hasParts: Bool)? {
        if let senc = inside.first(where: { $0.type == "senc" }) {
            return (senc.body.lowerBound + 8, try boxes.integer(senc.body.lowerBound + 1, 3) & 2 != 0)
        }
        guard let saio = inside.first(where: { $0.type == "saio" })?.body.lowerBound,
            let saiz = inside.first(where: { $0.type == "saiz" })?.body.lowerBound
        else { return nil }
        let sizes = saiz + (try boxes.integer(saiz + 1, 3) & 1 != 0 ? 12 : 4)
        let same = try boxes.integer(sizes, 1)
        let size = same == 0 ? try boxes.integer(sizes + 5, 1) : same
        let offset = try boxes.integer(saio + (boxes.integer(saio + 1, 3) & 1 != 0 ? 16 : 8))
        return (base + offset, size > protection?.vectorSize ?? 0)
    }
}
