/// The encrypted ranges and the changes of a part of a file: of a `moof` and the boxes after it, or of a part without
/// one. Immutable. Any thread.
final class Mp4Fragment: Sendable {
    /// From the `moof` to the next one.
    let bytes: Range<UInt64>
    let ranges: ProtectedRanges
    /// In ascending order.
    let patches: [Mp4Patch]
    /// The end of the last patch. Most bytes come after it.
    let patchedEnd: UInt64
    private let memory: Mp4Reservation

    /// Makes a part without a `moof`.
    init(
        _ bytes: Range<UInt64>, ranges: ProtectedRanges = ProtectedRanges(), patches: [Mp4Patch] = [],
        _ budget: inout Mp4Budget
    ) throws(ViewError) {
        self.bytes = bytes
        (self.ranges, self.patches) = (ranges, patches)
        patchedEnd = patches.last.map { $0.offset + 4 } ?? 0
        memory = try budget.keep(512 + ranges.memory + patches.count * MemoryLayout<Mp4Patch>.stride)
    }

    /// Parses a `moof`.
    /// - Parameter other: a fragment of the same file, because it most often has the same ciphers.
    convenience init(
        _ moof: Mp4Buffer, _ bytes: Range<UInt64>, _ movie: Mp4Movie, of source: SourceFile, like other: Mp4Fragment?,
        _ budget: inout Mp4Budget
    ) throws(ViewError) {
        var reading = Reading(buffer: moof, movie: movie, source: source)
        try reading.fragment(&budget)
        let end = bytes.lowerBound + UInt64(moof.bytes.count)
        try reading.ranges.finish(in: end..<max(end, bytes.upperBound), &budget)
        if let other { reading.ranges.shareCiphers(of: other.ranges) }
        try self.init(
            bytes, ranges: reading.ranges, patches: reading.patches.sorted { $0.offset < $1.offset }, &budget)
    }

    /// Checks a `moof` of an unencrypted film.
    /// - Throws: `.malformed` if it declares encrypted samples.
    static func checkClear(_ moof: Mp4TopBox, _ window: inout Mp4Window, _ work: Mp4Work) throws(ViewError) {
        var budget = Mp4Budget(work, media: 0)
        let buffer = try window.contents(of: moof.type, moof.bytes, &budget)
        for traf in try buffer.boxes(in: buffer.only(&budget), &budget) where traf.type == "traf" {
            try buffer.checkClear(buffer.boxes(in: traf, &budget))
        }
    }
}

/// One reading of a `moof`.
private struct Reading {
    let buffer: Mp4Buffer
    let movie: Mp4Movie
    let source: SourceFile
    var ranges = ProtectedRanges()
    var patches: [Mp4Patch] = []
    /// The end of the samples of the previous track fragment.
    var dataEnd: UInt64?

    mutating func fragment(_ budget: inout Mp4Budget) throws(ViewError) {
        for box in try buffer.boxes(in: buffer.only(&budget), &budget) {
            switch box.type {
            case "traf": try track(buffer.boxes(in: box, &budget), &budget)
            case "pssh": patches.append(buffer.renaming(box, to: "free"))
            default: break
            }
        }
    }

    private mutating func track(_ boxes: [Mp4Box], _ budget: inout Mp4Budget) throws(ViewError) {
        var fields = buffer.fields(of: try buffer.required("tfhd", in: boxes))
        let flags = try fields.versionAndFlags().flags
        let number: UInt32 = try fields.integer()
        guard let track = movie.tracks[number] else {
            throw buffer.contradiction("the moof has a track \(number), which the moov does not describe")
        }
        // Without an offset, the first track fragment counts from the moof, others from the end of the one before.
        var base = flags & 0x2_0000 != 0 ? buffer.start : dataEnd ?? buffer.start
        if flags & 1 != 0 { base = try fields.integer() }
        let entry = flags & 2 != 0 ? try fields.integer(UInt32.self) : track.entry
        if flags & 8 != 0 { try fields.skip(4) }
        let size = flags & 16 != 0 ? try fields.integer(UInt32.self) : track.sampleSize
        var samples = Mp4Samples()
        dataEnd = base
        for trun in boxes where trun.type == "trun" { try run(trun, base, entry, size, &samples, &budget) }
        guard let scheme = track.scheme else { return try buffer.checkClear(boxes) }
        patches += try buffer.hiding(boxes)
        let protection = try Mp4SampleProtection(
            buffer, boxes, scheme, groups: track.groups, isFragment: true, &budget)
        try protection.addRanges(of: samples, track, to: &ranges, base: base, &budget) {
            (offset, count) throws(ViewError) in
            try source.bytes(at: offset, count)
        }
    }

    private mutating func run(
        _ trun: Mp4Box, _ base: UInt64, _ entry: UInt32, _ size: UInt32, _ samples: inout Mp4Samples,
        _ budget: inout Mp4Budget
    ) throws(ViewError) {
        var fields = buffer.fields(of: trun)
        let flags = try fields.versionAndFlags().flags
        let count: UInt32 = try fields.integer()
        var start = dataEnd ?? base
        if flags & 1 != 0 {
            let offset = Int64(try fields.integer(Int32.self))
            guard base <= UInt64(Int64.max / 2), Int64(base) + offset >= 0 else {
                throw buffer.contradiction("a trun at \(base)\(offset >= 0 ? "+" : "")\(offset)")
            }
            start = UInt64(Int64(base) + offset)
        }
        if flags & 4 != 0 { try fields.skip(4) }
        let run = Mp4Samples.Run(offset: start, count: count, entry: entry)
        let total: UInt64
        if flags & 0x200 == 0 {
            try samples.add(run, size: size, &budget)
            total = UInt64(count) * UInt64(size)
        } else {
            let others = [0x100, 0x400, 0x800].map { flags & $0 != 0 ? 4 : 0 }
            try fields.check(Int(count), ofSize: 4 + others.reduce(0, +))
            total = try samples.add(run, &budget) { () throws(ViewError) in
                try fields.skip(others[0])
                let size: UInt32 = try fields.integer()
                try fields.skip(others[1] + others[2])
                return size
            }
        }
        let (end, overflow) = start.addingReportingOverflow(total)
        guard !overflow else { throw buffer.contradiction("a trun at \(start) of \(total) bytes") }
        dataEnd = end
    }
}
