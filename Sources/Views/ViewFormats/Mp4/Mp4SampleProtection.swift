/// The boxes about encryption in a `traf` or an `stbl`: `senc`, `saiz`, `saio`, `sgpd`, `sbgp`. The view hides them.
struct Mp4SampleProtection {
    /// PIFF's senc, which has a format of its own.
    private static let piffType: [UInt8] = [
        0xA2, 0x39, 0x4F, 0x52, 0x5A, 0x9B, 0x4F, 0x14, 0xA2, 0x44, 0x6C, 0x42, 0x7C, 0x64, 0x8D, 0xF4,
    ]

    private let buffer: Mp4Buffer
    private let senc: Mp4Box?
    private let saiz: Mp4Box?
    private let saio: Mp4Box?
    /// For each run of samples, its number and the index of the group.
    private var members: [(count: Int, group: Int)] = []
    /// The groups of the movie, and those of the fragment, which count from 0x10001 (ISO/IEC 14496-12, 8.9.4).
    private let movieGroups: [Mp4Protection]
    private var fragmentGroups: [Mp4Protection] = []

    /// - Parameters:
    ///   - groups: of the movie.
    ///   - isFragment: true if the boxes can define more groups.
    ///   - patches: receives the changes of the boxes.
    init(
        _ buffer: Mp4Buffer, _ boxes: [Mp4Box], _ scheme: Mp4Protection.Scheme, groups: [Mp4Protection],
        isFragment: Bool, patches: inout [Mp4Patch]
    ) throws(ViewError) {
        self.buffer = buffer
        movieGroups = groups
        senc = try buffer.box("senc", in: boxes)
        saiz = try Self.ofEncryption("saiz", boxes, buffer)
        saio = try Self.ofEncryption("saio", boxes, buffer)
        var hidden = [senc, saiz, saio].compactMap(\.self)
        for box in boxes {
            switch box.type {
            case "uuid" where buffer.bytes[box.contents].starts(with: Self.piffType):
                throw .malformed("PIFF's own sample encryption box, which is not supported")
            case "sgpd":
                guard let groups = try buffer.groups(box, scheme) else { continue }
                if isFragment { fragmentGroups += groups }
                hidden.append(box)
            case "sbgp":
                guard let found = try Self.members(box, buffer) else { continue }
                guard members.isEmpty else { throw buffer.contradiction("two boxes sbgp of the type seig") }
                members = found
                hidden.append(box)
            default: break
            }
        }
        for box in hidden { patches.append(buffer.renaming(box, to: "free")) }
    }

    /// `saiz` or `saio`, unless it is about other information than encryption.
    private static func ofEncryption(
        _ type: Mp4Type, _ boxes: [Mp4Box], _ buffer: Mp4Buffer
    ) throws(ViewError) -> Mp4Box? {
        var found: [Mp4Box] = []
        for box in boxes where box.type == type {
            var fields = buffer.fields(of: box)
            let flags = try fields.versionAndFlags().flags
            let kind = flags & 1 != 0 ? Mp4Type(code: try fields.integer()) : "cbcs"
            if ["cbcs", "cbc1", "cenc"].contains(kind) { found.append(box) }
        }
        return try buffer.box(type, in: found)
    }

    private static func members(
        _ sbgp: Mp4Box, _ buffer: Mp4Buffer
    ) throws(ViewError) -> [(count: Int, group: Int)]? {
        var fields = buffer.fields(of: sbgp)
        let version = try fields.versionAndFlags().version
        guard Mp4Type(code: try fields.integer()) == "seig" else { return nil }
        if version == 1 { try fields.skip(4) }
        let count = try fields.count(ofSize: 8)
        var members: [(count: Int, group: Int)] = []
        for _ in 0..<count {
            members.append((Int(try fields.integer(UInt32.self)), Int(try fields.integer(UInt32.self))))
        }
        return members
    }

    private func group(_ index: Int) throws(ViewError) -> Mp4Protection? {
        if index == 0 { return nil }
        let isLocal = index > 0x1_0000
        let groups = isLocal ? fragmentGroups : movieGroups
        let position = isLocal ? index - 0x1_0001 : index - 1
        guard groups.indices.contains(position) else { throw buffer.contradiction("there is no seig group \(index)") }
        return groups[position]
    }

    /// Adds the encrypted ranges of samples.
    ///
    /// - Parameters:
    ///   - base: to which the offsets of `saio` are relative.
    ///   - read: reads bytes of the file. For sample information outside of `senc`.
    func addRanges(
        of samples: Mp4Samples, _ track: Mp4Track, to ranges: inout ProtectedRanges, base: UInt64 = 0,
        read: (UInt64, Int) throws(ViewError) -> [UInt8]
    ) throws(ViewError) {
        var clear = 0
        try forEach(samples, track) { (_, _, protection) throws(ViewError) in
            if protection?.isProtected != true { clear += 1 }
        }
        // A fragment of clear samples has no information, and none of its boxes have a meaning.
        if clear == samples.sizes.count { return }
        var information = try information(of: samples, clear: clear, base: base, read: read)
        try forEach(samples, track) { (sample, size, protection) throws(ViewError) in
            if let protection { try add(sample, size, protection, to: &ranges, &information) }
        }
        guard information?.isAtEnd ?? true else {
            throw buffer.contradiction("a senc with more entries than there are samples")
        }
    }

    /// Calls `body` with the offset, the size and the protection of each sample.
    private func forEach(
        _ samples: Mp4Samples, _ track: Mp4Track,
        _ body: (UInt64, UInt32, Mp4Protection?) throws(ViewError) -> Void
    ) throws(ViewError) {
        var members = members[...]
        var (rest, group) = (0, Mp4Protection?.none)
        try samples.forEach(in: buffer) { (offset, size, entry) throws(ViewError) in
            while rest == 0 {
                // The samples after the last group have the protection of their entry.
                (rest, group) =
                    try members.popFirst().map { member throws(ViewError) in
                        (member.count, try self.group(member.group))
                    } ?? (.max, nil)
            }
            rest -= 1
            guard track.entries.indices.contains(entry - 1) else {
                throw buffer.contradiction("a sample has the entry \(entry) of \(track.entries.count)")
            }
            try body(offset, size, group ?? track.entries[entry - 1])
        }
        guard members.isEmpty && (rest == 0 || group == nil) else {
            throw buffer.contradiction("an sbgp with more samples than there are")
        }
    }

    private func add(
        _ sample: UInt64, _ size: UInt32, _ protection: Mp4Protection, to ranges: inout ProtectedRanges,
        _ information: inout Mp4SampleInformation?
    ) throws(ViewError) {
        guard protection.isProtected else {
            // Its entry is empty, or left out.
            try information?.skipClear()
            return
        }
        guard protection.vectorSize == 0 || information != nil else {
            throw buffer.contradiction("samples have vectors of their own, and no box has these")
        }
        var chain: UInt64?
        let vector = try information?.beginSample(protection) ?? protection.vector
        guard let parts = try information?.subsamples() else {
            return try ranges.add(sample, size, protection, vector, chain: &chain)
        }
        var (next, rest) = (sample, UInt64(size))
        for (clear, count) in parts {
            guard UInt64(clear) + UInt64(count) <= rest else {
                throw buffer.contradiction("the parts of the sample at \(sample) are longer than its \(size) bytes")
            }
            try ranges.add(next + UInt64(clear), count, protection, vector, chain: &chain)
            next += UInt64(clear) + UInt64(count)
            rest -= UInt64(clear) + UInt64(count)
        }
    }

    private func information(
        of samples: Mp4Samples, clear: Int, base: UInt64, read: (UInt64, Int) throws(ViewError) -> [UInt8]
    ) throws(ViewError) -> Mp4SampleInformation? {
        if let senc {
            return try Mp4SampleInformation(
                senc: senc, in: buffer, samples: samples.sizes.count, clear: clear)
        }
        guard let saiz, let saio else { return nil }
        let sizes = try sizes(saiz, count: samples.sizes.count)
        var fields = buffer.fields(of: saio)
        let (version, flags) = try fields.versionAndFlags()
        if flags & 1 != 0 { try fields.skip(8) }
        let count = try fields.count(ofSize: version == 0 ? 4 : 8)
        guard count == 1 || count == samples.runs.count else {
            throw buffer.contradiction("a saio of \(count) offsets for \(samples.runs.count) runs of samples")
        }
        var bytes: [UInt8] = []
        var sample = 0
        for number in 0..<count {
            let offset = version == 0 ? UInt64(try fields.integer(UInt32.self)) : try fields.integer(UInt64.self)
            let (position, overflow) = base.addingReportingOverflow(offset)
            let end = count == 1 ? sizes.count : min(sample + samples.runs[number].count, sizes.count)
            let size = sizes[sample..<end].reduce(0) { $0 + Int($1) }
            sample = end
            guard !overflow, bytes.count + size <= Mp4Movie.maximumSize else {
                throw buffer.contradiction("the sample information at \(offset) of \(size) bytes")
            }
            bytes += try read(position, size)
        }
        return Mp4SampleInformation(Mp4Buffer(bytes: bytes, start: base), sizes: sizes)
    }

    private func sizes(_ saiz: Mp4Box, count: Int) throws(ViewError) -> [UInt8] {
        var fields = buffer.fields(of: saiz)
        if try fields.versionAndFlags().flags & 1 != 0 { try fields.skip(8) }
        let size: UInt8 = try fields.integer()
        let entries = Int(try fields.integer(UInt32.self))
        guard entries == count else { throw buffer.contradiction("a saiz of \(entries) entries for \(count) samples") }
        if size != 0 { return [UInt8](repeating: size, count: count) }
        var sizes: [UInt8] = []
        for _ in 0..<count { sizes.append(try fields.integer()) }
        return sizes
    }
}
