/// The boxes about encryption in a `traf` or an `stbl`: `senc`, `saiz`, `saio`, `sgpd`, `sbgp`. The view hides them.
struct Mp4SampleProtection {
    /// Consecutive samples of a group.
    private struct Members {
        var count: UInt32
        /// The index of the group; 0 for none.
        var group: UInt32
    }

    private let buffer: Mp4Buffer
    private let senc: Mp4Box?
    private let saiz: Mp4Box?
    private let saio: Mp4Box?
    private var members: [Members] = []
    /// The groups of the movie, and those of the fragment, which count from 0x10001 (ISO/IEC 14496-12, 8.9.4).
    private let movieGroups: [Mp4Protection]
    private var fragmentGroups: [Mp4Protection] = []

    /// - Parameters:
    ///   - groups: of the movie.
    ///   - isFragment: true if the boxes can define more groups.
    init(
        _ buffer: Mp4Buffer, _ boxes: [Mp4Box], _ scheme: Mp4Protection.Scheme, groups: [Mp4Protection],
        isFragment: Bool, _ budget: inout Mp4Budget
    ) throws(ViewError) {
        self.buffer = buffer
        movieGroups = groups
        senc = try buffer.box("senc", in: boxes)
        saiz = try buffer.box("saiz", in: buffer.aboutEncryption("saiz", in: boxes))
        saio = try buffer.box("saio", in: buffer.aboutEncryption("saio", in: boxes))
        for box in boxes {
            switch box.type {
            case "uuid" where buffer.isPiff(box):
                throw .malformed("PIFF's own sample encryption box, which is not supported")
            case "sgpd" where isFragment: fragmentGroups += try buffer.groups(box, scheme, &budget) ?? []
            case "sbgp" where try buffer.isOfKeys(box):
                guard members.isEmpty else { throw buffer.contradiction("two boxes sbgp of the type seig") }
                members = try Self.members(box, buffer, &budget)
            default: break
            }
        }
    }

    private static func members(
        _ sbgp: Mp4Box, _ buffer: Mp4Buffer, _ budget: inout Mp4Budget
    ) throws(ViewError) -> [Members] {
        var fields = buffer.fields(of: sbgp)
        let version = try fields.versionAndFlags().version
        try fields.skip(version == 1 ? 8 : 4)
        let count = try fields.count(ofSize: 8, &budget)
        try budget.reserve(count * MemoryLayout<Members>.stride)
        var members: [Members] = []
        for _ in 0..<count { members.append(Members(count: try fields.integer(), group: try fields.integer())) }
        return members
    }

    private func group(_ index: UInt32) throws(ViewError) -> Mp4Protection? {
        if index == 0 { return nil }
        let isLocal = index > 0x1_0000
        let groups = isLocal ? fragmentGroups : movieGroups
        let position = Int(isLocal ? index - 0x1_0001 : index - 1)
        guard groups.indices.contains(position) else { throw buffer.contradiction("there is no seig group \(index)") }
        return groups[position]
    }

    /// Adds the encrypted ranges of samples.
    ///
    /// - Parameters:
    ///   - base: the origin of the offsets in `saio`.
    ///   - read: reads bytes of the file, for sample information outside `senc`.
    func addRanges(
        of samples: Mp4Samples, _ track: Mp4Track, to ranges: inout ProtectedRanges, base: UInt64 = 0,
        _ budget: inout Mp4Budget, read: (UInt64, Int) throws(ViewError) -> [UInt8]
    ) throws(ViewError) {
        var clear = 0
        try forEach(samples, track, &budget) { (_, _, protection, _) throws(ViewError) in
            if protection?.isProtected != true { clear += 1 }
        }
        // Stop at a fragment of clear samples, because it has no information, and its boxes have no meaning.
        if clear == samples.count { return }
        var information = try information(of: samples, clear: clear, base: base, &budget, read: read)
        ranges.reserve(information?.mostParts ?? samples.count - clear)
        try forEach(samples, track, &budget) { (sample, size, protection, budget) throws(ViewError) in
            if let protection { try add(sample, size, protection, to: &ranges, &information, &budget) }
        }
        guard information?.isAtEnd ?? true else {
            throw buffer.contradiction("a senc with more entries than there are samples")
        }
    }

    /// Calls `body` with the offset, the size and the protection of each sample.
    private func forEach(
        _ samples: Mp4Samples, _ track: Mp4Track, _ budget: inout Mp4Budget,
        _ body: (UInt64, UInt32, Mp4Protection?, inout Mp4Budget) throws(ViewError) -> Void
    ) throws(ViewError) {
        var members = members[...]
        var (rest, group) = (UInt32(0), Mp4Protection?.none)
        try samples.forEach(in: buffer, &budget) { (offset, size, entry, budget) throws(ViewError) in
            while rest == 0 {
                try budget.step()
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
            try body(offset, size, group ?? track.entries[entry - 1], &budget)
        }
        guard members.isEmpty && (rest == 0 || group == nil) else {
            throw buffer.contradiction("an sbgp with more samples than there are")
        }
    }

    private func add(
        _ sample: UInt64, _ size: UInt32, _ protection: Mp4Protection, to ranges: inout ProtectedRanges,
        _ information: inout Mp4SampleInformation?, _ budget: inout Mp4Budget
    ) throws(ViewError) {
        guard protection.isProtected else {
            // The entry of a clear sample is empty, or left out.
            try information?.skipClear()
            return
        }
        guard protection.vectorSize == 0 || information != nil else {
            throw buffer.contradiction("samples have vectors of their own, and no box has these")
        }
        var chain: UInt64?
        let vector = try information?.beginSample(protection) ?? protection.vector
        guard let parts = try information?.parts() else {
            return try ranges.add(sample, size, protection, vector, chain: &chain, &budget)
        }
        var (next, rest) = (sample, UInt64(size))
        for _ in 0..<parts {
            try budget.step()
            guard let (clear, count) = try information?.part() else { break }
            guard UInt64(clear) + UInt64(count) <= rest else {
                throw buffer.contradiction("the parts of the sample at \(sample) are longer than its \(size) bytes")
            }
            try ranges.add(next + UInt64(clear), count, protection, vector, chain: &chain, &budget)
            next += UInt64(clear) + UInt64(count)
            rest -= UInt64(clear) + UInt64(count)
        }
    }

    private func information(
        of samples: Mp4Samples, clear: Int, base: UInt64, _ budget: inout Mp4Budget,
        read: (UInt64, Int) throws(ViewError) -> [UInt8]
    ) throws(ViewError) -> Mp4SampleInformation? {
        if let senc {
            return try Mp4SampleInformation(
                senc: senc, in: buffer, samples: samples.count, clear: clear)
        }
        guard let saiz, let saio else { return nil }
        let sizes = try sizes(saiz, count: samples.count, &budget)
        var fields = buffer.fields(of: saio)
        let (version, flags) = try fields.versionAndFlags()
        if flags & 1 != 0 { try fields.skip(8) }
        let count = try fields.count(ofSize: version == 0 ? 4 : 8, &budget)
        guard count == 1 || count == samples.runs.count else {
            throw buffer.contradiction("a saio of \(count) offsets for \(samples.runs.count) runs of samples")
        }
        var bytes: [UInt8] = []
        var sample = 0
        for number in 0..<count {
            let offset = version == 0 ? UInt64(try fields.integer(UInt32.self)) : try fields.integer(UInt64.self)
            let (position, overflow) = base.addingReportingOverflow(offset)
            let end = count == 1 ? sizes.count : min(sample + Int(samples.runs[number].count), sizes.count)
            let size = sizes[sample..<end].reduce(0) { $0 + Int($1) }
            sample = end
            guard !overflow else { throw buffer.contradiction("sample information at \(base)+\(offset)") }
            try budget.spendInformation(size)
            bytes += try read(position, size)
        }
        return Mp4SampleInformation(Mp4Buffer(bytes: bytes, start: base), sizes: sizes)
    }

    private func sizes(_ saiz: Mp4Box, count: Int, _ budget: inout Mp4Budget) throws(ViewError) -> [UInt8] {
        var fields = buffer.fields(of: saiz)
        if try fields.versionAndFlags().flags & 1 != 0 { try fields.skip(8) }
        let size: UInt8 = try fields.integer()
        let entries = Int(try fields.integer(UInt32.self))
        guard entries == count else { throw buffer.contradiction("a saiz of \(entries) entries for \(count) samples") }
        if size == 0 { try fields.check(count, ofSize: 1) }
        try budget.spend(.entry, count)
        try budget.reserve(count)
        if size != 0 { return [UInt8](repeating: size, count: count) }
        var sizes: [UInt8] = []
        for _ in 0..<count { sizes.append(try fields.integer()) }
        return sizes
    }
}

extension Mp4Buffer {
    /// The type of PIFF's senc, which has a format of its own.
    private static let piffType: [UInt8] = [
        0xA2, 0x39, 0x4F, 0x52, 0x5A, 0x9B, 0x4F, 0x14, 0xA2, 0x44, 0x6C, 0x42, 0x7C, 0x64, 0x8D, 0xF4,
    ]

    fileprivate func isPiff(_ uuid: Mp4Box) -> Bool { bytes[uuid.contents].starts(with: Self.piffType) }

    /// Returns the boxes `saiz` or `saio` about encryption, and leaves out those about other information.
    fileprivate func aboutEncryption(_ type: Mp4Type, in boxes: [Mp4Box]) throws(ViewError) -> [Mp4Box] {
        var found: [Mp4Box] = []
        for box in boxes where box.type == type {
            if try isAboutEncryption(box) { found.append(box) }
        }
        return found
    }

    /// Returns false for a `saiz` or `saio` about other information. A box without a type is about encryption.
    private func isAboutEncryption(_ box: Mp4Box) throws(ViewError) -> Bool {
        var fields = fields(of: box)
        guard try fields.versionAndFlags().flags & 1 != 0 else { return true }
        return ["cbcs", "cbc1", "cenc", "cens"].contains(Mp4Type(code: try fields.integer()))
    }

    /// Returns changes that hide the boxes of encrypted samples, because a player of the view must not believe them.
    /// - Parameter boxes: of the `traf` or `stbl` of an encrypted track.
    func hiding(_ boxes: [Mp4Box]) throws(ViewError) -> [Mp4Patch] {
        var patches: [Mp4Patch] = []
        for box in boxes {
            let isHidden: Bool
            switch box.type {
            case "senc": isHidden = true
            case "saiz", "saio": isHidden = try isAboutEncryption(box)
            case "sgpd", "sbgp": isHidden = try isOfKeys(box)
            default: isHidden = false
            }
            if isHidden { patches.append(renaming(box, to: "free")) }
        }
        return patches
    }

    /// Checks the boxes of a track declared clear by the `moov`.
    /// - Parameter boxes: of the `traf` or `stbl`.
    /// - Throws: `.malformed` if one declares encrypted samples, because the `moov` is then that of another film.
    func checkClear(_ boxes: [Mp4Box]) throws(ViewError) {
        for box in boxes {
            let speaksOfEncryption: Bool
            switch box.type {
            case "senc": speaksOfEncryption = true
            case "uuid": speaksOfEncryption = isPiff(box)
            case "saiz", "saio": speaksOfEncryption = try isAboutEncryption(box)
            default: speaksOfEncryption = false
            }
            if speaksOfEncryption {
                throw contradiction("a track without encryption has the box \(box.type.text) of encrypted samples")
            }
        }
    }
}
