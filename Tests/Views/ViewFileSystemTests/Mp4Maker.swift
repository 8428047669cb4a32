import TestSupport

/// A maker of small fragmented MP4 films, of one track with encrypted samples (ISO/IEC 23001-7, scheme cbcs), and of
/// the same bytes with clear samples.
struct Mp4Maker {
    /// The place of the samples' vectors and parts in a fragment.
    enum Information: CaseIterable {
        case senc, sencAndSaiz, auxiliary
    }

    /// The mark of a clear fragment in a protected film.
    enum ClearLead: CaseIterable {
        case entry, group
    }

    var identifier: [UInt8]
    var key: [UInt8]
    var isVideo: Bool
    var (crypt, skip): (UInt8, UInt8)
    /// 0 for a constant vector.
    var vectorSize: Int
    var vector: [UInt8]
    /// True if the fragments name the key instead of the init segment.
    var isGrouped: Bool
    var information: Information
    var clearLead: ClearLead
    var scheme = "cbcs"

    init(_ random: inout SeededGenerator) {
        identifier = random.bytes(16)
        key = random.bytes(16)
        isVideo = Bool.random(using: &random)
        (crypt, skip) = [(1, 9), (1, 9), (5, 5), (10, 0), (0, 0), (1, 0)].randomElement(using: &random) ?? (1, 9)
        vectorSize = [0, 0, 16, 8].randomElement(using: &random) ?? 0
        vector = random.bytes(16)
        isGrouped = Int.random(in: 0..<5, using: &random) == 0
        information = Information.allCases.randomElement(using: &random) ?? .senc
        clearLead = ClearLead.allCases.randomElement(using: &random) ?? .entry
    }

    /// Joins the pieces, in unoptimized tests faster than the standard library.
    private static func joined(_ pieces: [[UInt8]]) -> [UInt8] {
        var result: [UInt8] = []
        for piece in pieces { result += piece }
        return result
    }

    static func big(_ value: Int, _ size: Int = 4) -> [UInt8] {
        withUnsafeBytes(of: value.bigEndian) { Array($0.suffix(size)) }
    }

    static func box(_ type: String, _ contents: [UInt8]...) -> [UInt8] {
        joined([big(8 + contents.reduce(0) { $0 + $1.count }), Array(type.utf8)] + contents)
    }

    private static func full(_ type: String, version: Int = 0, flags: Int = 0, _ contents: [UInt8]...) -> [UInt8] {
        box(type, big(version << 24 | flags), joined(contents))
    }

    private static func zeros(_ count: Int) -> [UInt8] { [UInt8](repeating: 0, count: count) }

    // MARK: The init segment

    /// - Parameter isProtected: false for the clear film's init segment.
    func initial(isProtected: Bool = true) -> [UInt8] {
        let codec = isVideo ? "avc1" : "mp4a"
        let fields = Self.zeros(6) + [0, 1] + Self.zeros(isVideo ? 70 : 20)
        let configuration = Self.box(isVideo ? "avcC" : "esds", Self.zeros(12))
        var entries = [Self.box(codec, fields, configuration)]
        if isProtected {
            let fragmentNames = isGrouped ? Self.zeros(16) : identifier
            let sinf = Self.box(
                "sinf", Self.box("frma", Array(codec.utf8)),
                Self.full("schm", Array(scheme.utf8), Self.big(0x10000)),
                Self.box("schi", Self.full("tenc", version: 1, [0], protection(fragmentNames, isProtected: true))))
            entries.insert(Self.box(isVideo ? "encv" : "enca", fields, configuration, sinf), at: 0)
            if clearLead == .group { entries.removeLast() }
        }
        let table = Self.box(
            "stbl", Self.full("stsd", Self.big(entries.count), Self.joined(entries)),
            Self.full("stts", Self.zeros(4)), Self.full("stsc", Self.zeros(4)), Self.full("stsz", Self.zeros(8)),
            Self.full("stco", Self.zeros(4)))
        let media = Self.box(
            "mdia", Self.full("mdhd", Self.zeros(20)),
            Self.full("hdlr", Self.zeros(4), Array((isVideo ? "vide" : "soun").utf8), Self.zeros(13)),
            Self.box("minf", table))
        let track = Self.box("trak", Self.full("tkhd", Self.zeros(8), Self.big(1), Self.zeros(68)), media)
        let extends = Self.box("mvex", Self.full("trex", Self.big(1), Self.big(1), Self.zeros(12)))
        let systems = isProtected && !isVideo ? Self.full("pssh", Self.zeros(20)) : []
        return Self.box("ftyp", Array("iso6".utf8), Self.zeros(4))
            + Self.box("moov", Self.full("mvhd", Self.zeros(96)), track, extends, systems)
    }

    /// Returns the fields of tenc and seig from the pattern on.
    private func protection(_ identifier: [UInt8], isProtected: Bool) -> [UInt8] {
        guard isProtected else { return [0, 0, 0] + identifier }
        let constant = vectorSize == 0 ? [16] + vector : []
        return [crypt << 4 | skip, 1, UInt8(vectorSize)] + identifier + constant
    }

    // MARK: Fragments

    struct Fragment {
        /// With encrypted samples.
        var stored: [UInt8]
        /// With clear samples, and otherwise the same bytes.
        var clear: [UInt8]
        /// From the moof to the end of the first sample.
        var frame: Range<Int>
    }

    private struct Sample {
        var clear: [UInt8]
        /// The number of bytes before each encrypted part, and in the part.
        var parts: [(clear: Int, count: Int)]
        var vector: [UInt8]
    }

    /// - Parameters:
    ///   - isProtected: false for a clear fragment.
    ///   - isOfClearFilm: true if the film's init segment is a clear film's, too.
    func fragment(
        _ number: Int, isProtected: Bool = true, isOfClearFilm: Bool = false, _ random: inout SeededGenerator
    ) throws -> Fragment {
        let isLead = !isProtected && !isOfClearFilm
        let samples = (0..<Int.random(in: 1...3, using: &random)).map { _ in sample(&random) }
        let stored = isProtected ? try samples.map(encrypted) : samples.map(\.clear)
        let hasInformation = isProtected && (isVideo || vectorSize > 0)
        let entries = samples.map { sample in
            let parts = sample.parts.flatMap { Self.big($0.clear, 2) + Self.big($0.count) }
            return Array(sample.vector.prefix(vectorSize)) + (isVideo ? Self.big(sample.parts.count, 2) + parts : [])
        }
        let isAuxiliary = hasInformation && information == .auxiliary
        let prefix = isAuxiliary ? Self.joined(entries) : []
        func moof(size: Int, senc: Int) -> [UInt8] {
            let isSecondEntry = isLead && clearLead == .entry
            var traf = [
                Self.full(
                    "tfhd", flags: 0x20000 | (isSecondEntry ? 2 : 0), Self.big(1), isSecondEntry ? Self.big(2) : []),
                Self.full("tfdt", Self.big(number)),
                Self.full(
                    "trun", flags: 0x201, Self.big(samples.count), Self.big(size + 8 + prefix.count),
                    samples.flatMap { Self.big($0.clear.count) }),
            ]
            if hasInformation, !isAuxiliary {
                traf.append(
                    Self.full(
                        "senc", flags: isVideo ? 2 : 0, Self.big(samples.count), Self.joined(entries)))
            }
            if hasInformation, information != .senc {
                traf.append(Self.full("saiz", [0], Self.big(samples.count), entries.map { UInt8($0.count) }))
                traf.append(Self.full("saio", Self.big(1), Self.big(isAuxiliary ? size + 8 : senc)))
            }
            if isProtected ? isGrouped : isLead && clearLead == .group {
                let entry = [0] + protection(isProtected ? identifier : Self.zeros(16), isProtected: isProtected)
                let type = Array("seig".utf8)
                traf.append(Self.full("sgpd", version: 1, type, Self.big(entry.count), Self.big(1), entry))
                traf.append(Self.full("sbgp", type, Self.big(1), Self.big(samples.count), Self.big(0x10001)))
            }
            return Self.box("moof", Self.full("mfhd", Self.big(number)), Self.box("traf", Self.joined(traf)))
        }
        let draft = moof(size: 0, senc: 0)
        let senc = Self.position(of: "senc", in: draft).map { $0 + 12 } ?? 0
        let head = moof(size: draft.count, senc: senc)
        let first = Bool.random(using: &random) ? Self.box("styp", Array("msdh".utf8), Self.zeros(4)) : []
        let frameEnd = first.count + head.count + 8 + prefix.count + (samples.first?.clear.count ?? 0)
        return Fragment(
            stored: first + head + Self.box("mdat", prefix, Self.joined(stored)),
            clear: first + head + Self.box("mdat", prefix, Self.joined(samples.map(\.clear))),
            frame: first.count..<frameEnd)
    }

    private static func position(of type: String, in bytes: [UInt8]) -> Int? {
        let wanted = Array(type.utf8)
        return (0..<(bytes.count - 4)).first { bytes[$0] == wanted[0] && Array(bytes[$0..<($0 + 4)]) == wanted }
    }

    private func sample(_ random: inout SeededGenerator) -> Sample {
        let bytes = random.bytes(Int.random(in: 40...200, using: &random))
        let vector = random.bytes(vectorSize) + Self.zeros(16 - vectorSize)
        guard isVideo else { return Sample(clear: bytes, parts: [(0, bytes.count)], vector: vector) }
        var parts: [(clear: Int, count: Int)] = []
        var rest = bytes.count
        while rest > 30 && parts.count < 2 {
            let clear = Int.random(in: 1...20, using: &random)
            let count = parts.isEmpty && Bool.random(using: &random) ? min(rest - clear, 40) : rest - clear
            parts.append((clear, count))
            rest -= clear + count
        }
        if rest > 0 { parts.append((rest, 0)) }
        return Sample(clear: bytes, parts: parts, vector: vector)
    }

    private func encrypted(_ sample: Sample) throws -> [UInt8] {
        var result = sample.clear
        var start = 0
        for (clear, count) in sample.parts {
            start += clear
            // Without a pattern, all whole blocks are encrypted.
            let (crypt, period) = skip == 0 ? (1, 1) : (Int(crypt), Int(crypt + skip))
            var chain = vectorSize == 0 ? vector : sample.vector
            for block in 0..<(count / 16) where block % period < crypt {
                let range = (start + 16 * block)..<(start + 16 * block + 16)
                chain = try cbc(result[range], key: key, vector: chain, encrypts: true)
                result.replaceSubrange(range, with: chain)
            }
            start += count
        }
        return result
    }
}
