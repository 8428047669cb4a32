/// Small MP4 files in memory (ISO/IEC 14496-12 and 23001-7).
enum Mp4Boxes {
    static func numbers(_ values: UInt32...) -> [UInt8] {
        values.flatMap { value in withUnsafeBytes(of: value.bigEndian) { Array($0) } }
    }

    static func box(_ type: String, _ parts: [UInt8]...) -> [UInt8] {
        let contents = parts.flatMap(\.self)
        return numbers(UInt32(8 + contents.count)) + Array(type.utf8) + contents
    }

    static func full(_ type: String, _ flags: UInt32, _ parts: [UInt8]...) -> [UInt8] {
        box(type, numbers(flags), parts.flatMap(\.self))
    }

    static let ftyp = box("ftyp", Array("isom".utf8), numbers(0))

    /// Returns a sample entry of cbcs with a constant vector.
    static func protectedEntry(pattern: UInt8 = 0x19, key: UInt8 = 0x11) -> [UInt8] {
        let tenc = full(
            "tenc", 0x100_0000, [0, pattern, 1, 0], [UInt8](repeating: key, count: 16), [16],
            [UInt8](repeating: 7, count: 16))
        let sinf = box(
            "sinf", box("frma", Array("avc1".utf8)), full("schm", 0, Array("cbcs".utf8), numbers(0x10000)),
            box("schi", tenc))
        return box("encv", [UInt8](repeating: 0, count: 78), sinf)
    }

    static let clearEntry = box("avc1", [UInt8](repeating: 0, count: 78))

    /// Empty sample tables.
    static let noSamples =
        full("stsc", 0, numbers(0)) + full("stsz", 0, numbers(0, 0)) + full("stco", 0, numbers(0))

    static func track(_ entry: [UInt8], number: UInt32 = 1, tables: [UInt8] = noSamples) -> [UInt8] {
        let stbl = box("stbl", full("stsd", 0, numbers(1), entry), tables)
        return box(
            "trak", full("tkhd", 3, numbers(0, 0, number), [UInt8](repeating: 0, count: 68)),
            box("mdia", box("minf", stbl)))
    }

    static func moov(_ tracks: [UInt8]..., sampleSize: UInt32 = 0) -> [UInt8] {
        let defaults = (1...UInt32(max(1, tracks.count))).flatMap { full("trex", 0, numbers($0, 1, 0, sampleSize, 0)) }
        return box("moov", tracks.flatMap(\.self), box("mvex", defaults))
    }

    static func fragment(_ boxes: [UInt8]..., number: UInt32 = 1, media: Int = 0) -> [UInt8] {
        let moof = box("moof", box("traf", full("tfhd", 0x20000, numbers(number)), boxes.flatMap(\.self)))
        return moof + box("mdat", [UInt8](repeating: 0xA5, count: media))
    }
}
