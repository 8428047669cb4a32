/// A track of a `moov`, as far as decryption needs it.
struct Mp4Track: Equatable, Sendable {
    /// For each sample entry, the protection of its samples. Nil if they are clear.
    var entries: [Mp4Protection?] = []
    /// The `seig` groups of the `moov`.
    var groups: [Mp4Protection] = []
    /// Defaults of fragments, from `trex`.
    var entry = 1
    var sampleSize: UInt32 = 0

    var scheme: Mp4Protection.Scheme? { entries.lazy.compactMap(\.?.scheme).first }
}

/// The `moov` of a file or of an init segment: its tracks, and its changes in the view. Immutable. Any thread.
final class Mp4Movie: Equatable, Sendable {
    /// Maximum size of a `moov` and of a `moof`, in bytes.
    static let maximumSize = 16 << 20

    let tracks: [UInt32: Mp4Track]
    /// In the file that has the `moov`, in ascending order.
    let patches: [Mp4Patch]
    /// The encrypted ranges of samples that are not in fragments.
    let ranges: ProtectedRanges
    /// The end of the box in the file.
    let end: UInt64

    /// Parses a `moov`.
    /// - Parameter source: the file, for samples without fragments.
    init(_ bytes: [UInt8], at start: UInt64, of source: SourceFile) throws(ViewError) {
        let buffer = Mp4Buffer(bytes: bytes, start: start)
        end = start + UInt64(bytes.count)
        guard let moov = try buffer.boxes(in: 0..<bytes.count).first else {
            throw buffer.contradiction("the moov has no header")
        }
        var reading = Reading(buffer: buffer, source: source)
        try reading.movie(moov)
        tracks = reading.tracks
        patches = reading.patches.sorted { $0.offset < $1.offset }
        try reading.ranges.finish(in: 0..<source.size)
        ranges = reading.ranges
    }

    /// True if the file has samples that can be encrypted.
    var isProtected: Bool { tracks.values.contains { $0.scheme != nil } }

    /// The protections of all samples that the `moov` describes.
    var protections: [Mp4Protection] {
        tracks.sorted { $0.key < $1.key }.flatMap { $0.value.entries.compactMap(\.self) + $0.value.groups }
            .filter(\.isProtected)
    }

    /// The keys that the `moov` names, each once. Without the zero that stands for keys that fragments name.
    var keys: [KeyID] {
        var seen: Set<KeyID> = []
        return protections.map(\.key).filter { !$0.isZero && seen.insert($0).inserted }
    }

    /// True if fragments may need keys that the `moov` does not name.
    var namesKeysInFragments: Bool { protections.contains { $0.key.isZero } }

    static func == (one: Mp4Movie, other: Mp4Movie) -> Bool {
        one === other
            || (one.tracks == other.tracks && one.patches == other.patches && one.ranges == other.ranges
                && one.end == other.end)
    }
}

/// One reading of a `moov`.
private struct Reading {
    let buffer: Mp4Buffer
    let source: SourceFile
    var tracks: [UInt32: Mp4Track] = [:]
    var patches: [Mp4Patch] = []
    var ranges = ProtectedRanges()

    mutating func movie(_ moov: Mp4Box) throws(ViewError) {
        let boxes = try buffer.boxes(in: moov)
        var tables: [(UInt32, [Mp4Box])] = []
        for box in boxes where box.type == "trak" {
            let trak = try buffer.boxes(in: box)
            var fields = buffer.fields(of: try buffer.required("tkhd", in: trak))
            try fields.skip(try fields.versionAndFlags().version == 1 ? 16 : 8)
            let number: UInt32 = try fields.integer()
            guard tracks[number] == nil else { throw buffer.contradiction("two tracks have the number \(number)") }
            let mdia = try buffer.boxes(in: buffer.required("mdia", in: trak))
            let minf = try buffer.boxes(in: buffer.required("minf", in: mdia))
            let stbl = try buffer.boxes(in: buffer.required("stbl", in: minf))
            tracks[number] = try track(stbl)
            // Some packagers write senc beside stbl, not in it.
            tables.append((number, stbl + trak.filter { $0.type == "senc" }))
        }
        if let mvex = try buffer.box("mvex", in: boxes) {
            for trex in try buffer.boxes(in: mvex) where trex.type == "trex" { try defaults(trex) }
        }
        guard tracks.values.contains(where: { $0.scheme != nil }) else {
            patches = []
            return
        }
        for box in boxes where box.type == "pssh" { patches.append(buffer.renaming(box, to: "free")) }
        for (number, boxes) in tables {
            guard let track = tracks[number] else { continue }
            try samples(of: track, boxes)
        }
    }

    private mutating func defaults(_ trex: Mp4Box) throws(ViewError) {
        var fields = buffer.fields(of: trex)
        _ = try fields.versionAndFlags()
        let number: UInt32 = try fields.integer()
        let entry = Int(try fields.integer(UInt32.self))
        try fields.skip(4)
        let size: UInt32 = try fields.integer()
        tracks[number]?.entry = entry
        tracks[number]?.sampleSize = size
    }

    private mutating func track(_ stbl: [Mp4Box]) throws(ViewError) -> Mp4Track {
        var track = Mp4Track()
        let stsd = try buffer.required("stsd", in: stbl)
        var fields = buffer.fields(of: stsd)
        let version = try fields.versionAndFlags().version
        let count = try fields.count(ofSize: 8)
        let entries = try buffer.boxes(in: fields.position..<stsd.contents.upperBound)
        guard entries.count == count else {
            throw buffer.contradiction("an stsd of \(count) entries has \(entries.count)")
        }
        for entry in entries { track.entries.append(try protection(of: entry, stsdVersion: version)) }
        guard let scheme = track.scheme else { return track }
        guard track.entries.allSatisfy({ $0.map { $0.scheme == scheme } ?? true }) else {
            throw .malformed("a track with the schemes cbcs and cbc1, which is not supported")
        }
        for box in stbl where box.type == "sgpd" { track.groups += try buffer.groups(box, scheme) ?? [] }
        return track
    }

    private mutating func protection(of entry: Mp4Box, stsdVersion: UInt8) throws(ViewError) -> Mp4Protection? {
        guard let skipped = try fieldsSize(of: entry, stsdVersion) else { return nil }
        guard entry.contents.count >= skipped else {
            throw buffer.contradiction("the sample entry \(entry.type.text) is too short")
        }
        let parts = try buffer.boxes(in: (entry.contents.lowerBound + skipped)..<entry.contents.upperBound)
        let sinf = try buffer.required("sinf", in: parts)
        let (protection, format) = try buffer.protection(of: entry, sinf)
        patches.append(buffer.renaming(entry, to: format))
        patches.append(buffer.renaming(sinf, to: "free"))
        return protection
    }

    /// Bytes of an encrypted sample entry before its boxes. Nil if the entry is not encrypted.
    private func fieldsSize(of entry: Mp4Box, _ stsdVersion: UInt8) throws(ViewError) -> Int? {
        switch entry.type {
        case "encv": return 78
        case "encs", "enct", "encm": return 8
        case "enca":
            guard stsdVersion == 0 else { return 28 }
            // QuickTime's versions 1 and 2 of the entry have more fields.
            var fields = buffer.fields(of: entry)
            try fields.skip(8)
            switch try fields.integer(UInt16.self) {
            case 1: return 44
            case 2: return 64
            default: return 28
            }
        default: return nil
        }
    }

    // MARK: Samples without fragments

    private mutating func samples(of track: Mp4Track, _ boxes: [Mp4Box]) throws(ViewError) {
        guard let scheme = track.scheme else { return }
        let samples = try Mp4SampleTable(buffer, boxes).samples()
        let protection = try Mp4SampleProtection(
            buffer, boxes, scheme, groups: track.groups, isFragment: false, patches: &patches)
        try protection.addRanges(of: samples, track, to: &ranges) { (offset, count) throws(ViewError) in
            try source.bytes(at: offset, count)
        }
    }
}

/// The positions of samples that are not in fragments: `stsz`, `stsc`, `stco` (ISO/IEC 14496-12, 8.7).
private struct Mp4SampleTable {
    private let buffer: Mp4Buffer
    private let boxes: [Mp4Box]

    init(_ buffer: Mp4Buffer, _ boxes: [Mp4Box]) { (self.buffer, self.boxes) = (buffer, boxes) }

    func samples() throws(ViewError) -> Mp4Samples {
        var samples = Mp4Samples()
        samples.sizes = try sizes(samples)
        let offsets = try chunkOffsets()
        var fields = buffer.fields(of: try buffer.required("stsc", in: boxes))
        _ = try fields.versionAndFlags()
        let count = try fields.count(ofSize: 12)
        var entries: [(first: Int, samples: Int, entry: Int)] = []
        for _ in 0..<count {
            let first = Int(try fields.integer(UInt32.self))
            let samples = Int(try fields.integer(UInt32.self))
            guard first == 1 || first > entries.last?.first ?? .max else {
                throw buffer.contradiction("the chunks of stsc do not ascend")
            }
            entries.append((first, samples, Int(try fields.integer(UInt32.self))))
        }
        var next = 0
        for (number, entry) in entries.enumerated() {
            let end = number + 1 < entries.count ? entries[number + 1].first - 1 : offsets.count
            guard entry.first - 1 <= end, end <= offsets.count else {
                throw buffer.contradiction("stsc has more chunks than stco")
            }
            for offset in offsets[(entry.first - 1)..<end] {
                guard entry.samples <= samples.sizes.count - next else {
                    throw buffer.contradiction("stsc has more samples than stsz")
                }
                samples.runs.append(Mp4Samples.Run(offset: offset, count: entry.samples, entry: entry.entry))
                next += entry.samples
            }
        }
        guard next == samples.sizes.count else { throw buffer.contradiction("stsc has fewer samples than stsz") }
        return samples
    }

    private func sizes(_ samples: Mp4Samples) throws(ViewError) -> [UInt32] {
        var fields: Mp4Fields
        var bits: UInt8 = 32
        if let stz2 = try buffer.box("stz2", in: boxes) {
            fields = buffer.fields(of: stz2)
            try fields.skip(7)
            bits = try fields.integer()
        } else {
            fields = buffer.fields(of: try buffer.required("stsz", in: boxes))
            _ = try fields.versionAndFlags()
            let size: UInt32 = try fields.integer()
            if size != 0 {
                let count = Int(try fields.integer(UInt32.self))
                try samples.checkCount(adding: count)
                return [UInt32](repeating: size, count: count)
            }
        }
        let count = Int(try fields.integer(UInt32.self))
        try samples.checkCount(adding: count)
        var sizes: [UInt32] = []
        while sizes.count < count {
            switch bits {
            case 32: sizes.append(try fields.integer())
            case 16: sizes.append(UInt32(try fields.integer(UInt16.self)))
            case 8: sizes.append(UInt32(try fields.integer(UInt8.self)))
            case 4:
                let pair: UInt8 = try fields.integer()
                sizes.append(UInt32(pair >> 4))
                if sizes.count < count { sizes.append(UInt32(pair & 15)) }
            default: throw buffer.contradiction("an stz2 with \(bits) bits a size")
            }
        }
        return sizes
    }

    private func chunkOffsets() throws(ViewError) -> [UInt64] {
        let isLong = try buffer.box("stco", in: boxes) == nil
        var fields = buffer.fields(of: try buffer.required(isLong ? "co64" : "stco", in: boxes))
        _ = try fields.versionAndFlags()
        let count = try fields.count(ofSize: isLong ? 8 : 4)
        var offsets: [UInt64] = []
        offsets.reserveCapacity(count)
        for _ in 0..<count {
            offsets.append(isLong ? try fields.integer() : UInt64(try fields.integer(UInt32.self)))
        }
        return offsets
    }
}
