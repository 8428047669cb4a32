/// A track of a `moov`, as far as decryption needs it.
struct Mp4Track: Sendable {
    /// For each sample entry, the protection of its samples; nil for clear ones.
    var entries: [Mp4Protection?] = []
    /// The `seig` groups of the `moov`.
    var groups: [Mp4Protection] = []
    /// Defaults of fragments, from `trex`.
    var entry: UInt32 = 1
    var sampleSize: UInt32 = 0

    var scheme: Mp4Protection.Scheme? { entries.lazy.compactMap(\.?.scheme).first }
}

/// The `moov` of a file or of an init segment: its tracks, and its changes in the view. Immutable. Any thread.
final class Mp4Movie: Sendable {
    /// Maximum size of a `moov` and of a `moof`, in bytes.
    static let maximumSize = 16 << 20

    /// The position in the file.
    let box: Mp4TopBox
    let tracks: [UInt32: Mp4Track]
    /// The changes of the file with the `moov`, in ascending order.
    let patches: [Mp4Patch]
    /// True if encrypted tracks have samples outside fragments.
    let hasSamples: Bool
    /// Differs for other bytes.
    let digest: Int
    private let memory: Mp4Reservation

    /// Parses a `moov`.
    init(_ box: Mp4TopBox, _ window: inout Mp4Window, _ work: Mp4Work) throws(ViewError) {
        var budget = Mp4Budget(work, media: 0)
        let buffer = try window.contents(of: box.type, box.bytes, &budget)
        var reading = Reading(buffer: buffer)
        try reading.movie(&budget)
        self.box = box
        (tracks, hasSamples) = (reading.tracks, reading.hasSamples)
        patches = reading.patches.sorted { $0.offset < $1.offset }
        var hasher = Hasher()
        hasher.combine(box.bytes.lowerBound)
        buffer.bytes.withUnsafeBytes { hasher.combine(bytes: $0) }
        digest = hasher.finalize()
        let protections = tracks.values.reduce(0) { $0 + $1.entries.count + $1.groups.count }
        memory = try budget.keep(
            512 + tracks.count * MemoryLayout<Mp4Track>.stride * 2 + protections * Mp4Budget.Item.protection.size
                + patches.count * MemoryLayout<Mp4Patch>.stride)
    }

    /// Returns the encrypted ranges of the samples outside fragments. Reads the `moov` again, to save memory.
    func ranges(
        _ window: inout Mp4Window, before end: UInt64, _ budget: inout Mp4Budget
    ) throws(ViewError) -> ProtectedRanges {
        var ranges = ProtectedRanges()
        guard hasSamples else { return ranges }
        let buffer = try window.contents(of: box.type, box.bytes, &budget)
        let source = window.source
        try buffer.forEachTrack(&budget) { (number, boxes, budget) throws(ViewError) in
            guard let track = tracks[number], let scheme = track.scheme else { return }
            let samples = try Mp4SampleTable(buffer, boxes).samples(&budget)
            let protection = try Mp4SampleProtection(
                buffer, boxes, scheme, groups: track.groups, isFragment: false, &budget)
            try protection.addRanges(of: samples, track, to: &ranges, &budget) { (offset, count) throws(ViewError) in
                try source.bytes(at: offset, count)
            }
        }
        try ranges.finish(in: 0..<source.size, &budget)
        if let last = ranges.all.last, last.end > end {
            throw .malformed("samples of the moov at \(last.end) are past the first moof")
        }
        return ranges
    }

    var end: UInt64 { box.bytes.upperBound }

    /// True if the file has samples that can be encrypted.
    var isProtected: Bool { tracks.values.contains { $0.scheme != nil } }

    /// The protections of all samples described by the `moov`.
    var protections: [Mp4Protection] {
        tracks.sorted { $0.key < $1.key }.flatMap { $0.value.entries.compactMap(\.self) + $0.value.groups }
            .filter(\.isProtected)
    }

    /// The keys named by the `moov`, without the zero for keys named by fragments.
    var keys: [KeyID] { protections.map(\.key).filter { !$0.isZero } }

    /// True if fragments may need keys not named by the `moov`.
    var namesKeysInFragments: Bool { protections.contains { $0.key.isZero } }
}

/// One reading of a `moov`.
private struct Reading {
    let buffer: Mp4Buffer
    var tracks: [UInt32: Mp4Track] = [:]
    var patches: [Mp4Patch] = []
    var hasSamples = false

    mutating func movie(_ budget: inout Mp4Budget) throws(ViewError) {
        try buffer.forEachTrack(&budget) { (number, boxes, budget) throws(ViewError) in
            guard tracks[number] == nil else { throw buffer.contradiction("two tracks have the number \(number)") }
            let track = try track(boxes, &budget)
            tracks[number] = track
            if track.scheme == nil { return try buffer.checkClear(boxes) }
            patches += try buffer.hiding(boxes)
            if try Mp4SampleTable(buffer, boxes).count() > 0 { hasSamples = true }
        }
        let boxes = try buffer.boxes(in: buffer.only(&budget), &budget)
        if let mvex = try buffer.box("mvex", in: boxes) {
            for trex in try buffer.boxes(in: mvex, &budget) where trex.type == "trex" { try defaults(trex) }
        }
        guard tracks.values.contains(where: { $0.scheme != nil }) else {
            patches = []
            return
        }
        for box in boxes where box.type == "pssh" { patches.append(buffer.renaming(box, to: "free")) }
    }

    private mutating func defaults(_ trex: Mp4Box) throws(ViewError) {
        var fields = buffer.fields(of: trex)
        _ = try fields.versionAndFlags()
        let number: UInt32 = try fields.integer()
        let entry: UInt32 = try fields.integer()
        try fields.skip(4)
        let size: UInt32 = try fields.integer()
        tracks[number]?.entry = entry
        tracks[number]?.sampleSize = size
    }

    private mutating func track(_ stbl: [Mp4Box], _ budget: inout Mp4Budget) throws(ViewError) -> Mp4Track {
        var track = Mp4Track()
        let stsd = try buffer.required("stsd", in: stbl)
        var fields = buffer.fields(of: stsd)
        let version = try fields.versionAndFlags().version
        let count = try fields.count(ofSize: 8, &budget)
        let entries = try buffer.boxes(in: fields.position..<stsd.contents.upperBound, &budget)
        guard entries.count == count else {
            throw buffer.contradiction("an stsd of \(count) entries has \(entries.count)")
        }
        try budget.spend(.protection, count)
        for entry in entries { track.entries.append(try protection(of: entry, stsdVersion: version, &budget)) }
        guard let scheme = track.scheme else { return track }
        guard track.entries.allSatisfy({ $0.map { $0.scheme == scheme } ?? true }) else {
            throw .malformed("a track with the schemes cbcs and cbc1, which is not supported")
        }
        for box in stbl where box.type == "sgpd" { track.groups += try buffer.groups(box, scheme, &budget) ?? [] }
        return track
    }

    private mutating func protection(
        of entry: Mp4Box, stsdVersion: UInt8, _ budget: inout Mp4Budget
    ) throws(ViewError) -> Mp4Protection? {
        guard let skipped = try fieldsSize(of: entry, stsdVersion) else { return nil }
        guard entry.contents.count >= skipped else {
            throw buffer.contradiction("the sample entry \(entry.type.text) is too short")
        }
        let parts = try buffer.boxes(in: (entry.contents.lowerBound + skipped)..<entry.contents.upperBound, &budget)
        let sinf = try buffer.required("sinf", in: parts)
        let (protection, format) = try buffer.protection(of: entry, sinf, &budget)
        patches.append(buffer.renaming(entry, to: format))
        patches.append(buffer.renaming(sinf, to: "free"))
        return protection
    }

    /// Returns the bytes of an encrypted sample entry before its boxes, or nil if the entry is not encrypted.
    private func fieldsSize(of entry: Mp4Box, _ stsdVersion: UInt8) throws(ViewError) -> Int? {
        switch entry.type {
        case "encv": return 78
        case "encs", "enct", "encm": return 8
        case "enca":
            guard stsdVersion == 0 else { return 28 }
            // Versions 1 and 2 of QuickTime's entry have more fields.
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
}

extension Mp4Buffer {
    /// Calls `body` with the number of each track of a `moov`, and the boxes in its `stbl`.
    fileprivate func forEachTrack(
        _ budget: inout Mp4Budget, _ body: (UInt32, [Mp4Box], inout Mp4Budget) throws(ViewError) -> Void
    ) throws(ViewError) {
        for box in try boxes(in: only(&budget), &budget) where box.type == "trak" {
            let trak = try boxes(in: box, &budget)
            var fields = fields(of: try required("tkhd", in: trak))
            try fields.skip(try fields.versionAndFlags().version == 1 ? 16 : 8)
            let number: UInt32 = try fields.integer()
            let mdia = try boxes(in: required("mdia", in: trak), &budget)
            let minf = try boxes(in: required("minf", in: mdia), &budget)
            let stbl = try boxes(in: required("stbl", in: minf), &budget)
            // Include senc beside stbl, because some packagers write it there.
            try body(number, stbl + trak.filter { $0.type == "senc" }, &budget)
        }
    }
}
