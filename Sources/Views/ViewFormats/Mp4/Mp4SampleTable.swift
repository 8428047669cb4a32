/// The positions of samples outside fragments: `stsz`, `stsc`, `stco` (ISO/IEC 14496-12, 8.7).
struct Mp4SampleTable {
    private let buffer: Mp4Buffer
    private let boxes: [Mp4Box]

    /// - Parameter boxes: of an `stbl`.
    init(_ buffer: Mp4Buffer, _ boxes: [Mp4Box]) { (self.buffer, self.boxes) = (buffer, boxes) }

    /// The number of samples.
    func count() throws(ViewError) -> Int { try sizes().count }

    func samples(_ budget: inout Mp4Budget) throws(ViewError) -> Mp4Samples {
        var samples = Mp4Samples()
        var sizes = try sizes()
        let isLong = try buffer.box("stco", in: boxes) == nil
        var offsets = buffer.fields(of: try buffer.required(isLong ? "co64" : "stco", in: boxes))
        _ = try offsets.versionAndFlags()
        let chunks = try offsets.count(ofSize: isLong ? 8 : 4, &budget)
        var fields = buffer.fields(of: try buffer.required("stsc", in: boxes))
        _ = try fields.versionAndFlags()
        let count = try fields.count(ofSize: 12, &budget)
        samples.reserve(runs: min(chunks, Mp4Budget.Item.run.limit), sizes: sizes.listed)
        // The number of chunks before the current one.
        var done = 0
        var next = count > 0 ? Int(try fields.integer(UInt32.self)) : chunks + 1
        guard next == 1 || count == 0 else { throw buffer.contradiction("the chunks of stsc do not ascend") }
        for number in 0..<count {
            let perChunk: UInt32 = try fields.integer()
            let entry: UInt32 = try fields.integer()
            let first = next
            let isLast = number + 1 == count
            next = isLast ? chunks + 1 : Int(try fields.integer(UInt32.self))
            guard next > first || isLast else { throw buffer.contradiction("the chunks of stsc do not ascend") }
            guard first - 1 <= chunks, next - 1 <= chunks else {
                throw buffer.contradiction("stsc has more chunks than stco")
            }
            while done < next - 1 {
                done += 1
                let offset = isLong ? try offsets.integer() : UInt64(try offsets.integer(UInt32.self))
                guard Int(perChunk) <= sizes.count - samples.count else {
                    throw buffer.contradiction("stsc has more samples than stsz")
                }
                let run = Mp4Samples.Run(offset: offset, count: perChunk, entry: entry)
                if let size = sizes.size {
                    try samples.add(run, size: size, &budget)
                } else {
                    _ = try samples.add(run, &budget) { () throws(ViewError) in try sizes.next() }
                }
            }
        }
        guard samples.count == sizes.count else { throw buffer.contradiction("stsc has fewer samples than stsz") }
        return samples
    }

    /// The sizes of samples, one after another.
    private struct Sizes {
        let count: Int
        /// The size of each sample; nil if they differ.
        var size: UInt32?
        var fields: Mp4Fields
        var bits: UInt8 = 32
        /// The second half of a byte with two sizes.
        var half: UInt8?

        /// The number of sizes for which the table has room.
        var listed: Int { size == nil ? min(count, fields.remaining * 8 / Int(bits), Mp4Budget.Item.sample.limit) : 0 }

        mutating func next() throws(ViewError) -> UInt32 {
            switch bits {
            case 32: return try fields.integer()
            case 16: return UInt32(try fields.integer(UInt16.self))
            case 8: return UInt32(try fields.integer(UInt8.self))
            case 4:
                if let second = half {
                    half = nil
                    return UInt32(second)
                }
                let pair: UInt8 = try fields.integer()
                half = pair & 15
                return UInt32(pair >> 4)
            default: preconditionFailure("internal error: \(bits) bits a size")
            }
        }
    }

    private func sizes() throws(ViewError) -> Sizes {
        if let stz2 = try buffer.box("stz2", in: boxes) {
            var fields = buffer.fields(of: stz2)
            try fields.skip(7)
            let bits: UInt8 = try fields.integer()
            guard [4, 8, 16].contains(bits) else { throw buffer.contradiction("an stz2 with \(bits) bits a size") }
            return Sizes(count: Int(try fields.integer(UInt32.self)), fields: fields, bits: bits)
        }
        var fields = buffer.fields(of: try buffer.required("stsz", in: boxes))
        _ = try fields.versionAndFlags()
        let size: UInt32 = try fields.integer()
        return Sizes(count: Int(try fields.integer(UInt32.self)), size: size == 0 ? nil : size, fields: fields)
    }
}
