import LinuxSystem
import TestSupport
import Testing

@testable import ViewFormats

@Suite("Files that are encrypted, clear, or not MP4") struct Mp4VerdictTests {
    typealias Boxes = Mp4Boxes

    private static let protected = Boxes.ftyp + Boxes.moov(Boxes.track(Boxes.protectedEntry()))
    private static let clear = Boxes.ftyp + Boxes.moov(Boxes.track(Boxes.clearEntry))
    private static let segment = Boxes.box("styp", Array("msdh".utf8)) + Boxes.fragment(media: 100)
    private static let senc = Boxes.full("senc", 0, Boxes.numbers(0))

    /// Returns the verdict as text, with the keys of protected files.
    private func verdict(
        _ bytes: [UInt8], initial: [UInt8]? = nil, _ range: Range<UInt64>? = nil
    ) throws -> String {
        let place = try ViewPlace()
        let naming = ContentKeys.Naming(directory: [], given: [])
        var isAsked = false
        let verdict = try Mp4Plan.read(place.source(of: bytes), naming, Mp4Work()) { () throws(ViewError) in
            isAsked = true
            return try Self.segment(initial, range, place)
        }
        #expect(isAsked || initial == nil)
        return switch verdict {
        case .notMp4: "not MP4"
        case .clear(let proof): "clear: \(proof)"
        case .protected(let plan): "protected: \(plan.protections.map { String($0.key.text.prefix(2)) })"
        }
    }

    private static func segment(
        _ bytes: [UInt8]?, _ range: Range<UInt64>?, _ place: ViewPlace
    ) throws(ViewError) -> Mp4InitSegment? {
        guard let bytes else { return nil }
        do {
            try place.write(bytes, to: "init")
            return Mp4InitSegment(source: try place.source("init"), bytes: range)
        } catch { throw .malformed("\(error)") }
    }

    @Test("the moov decides: of the file, or of its init segment")
    func verdicts() throws {
        #expect(try verdict(Self.protected) == #"protected: ["11"]"#)
        #expect(try verdict(Self.protected + Boxes.fragment(media: 9)) == #"protected: ["11"]"#)
        #expect(try verdict(Self.clear) == "clear: its moov names no encryption")
        #expect(try verdict(Self.clear + Boxes.fragment(media: 9)) == "clear: its moov names no encryption")
        #expect(try verdict(Self.segment, initial: Self.protected) == #"protected: ["11"]"#)
        #expect(try verdict(Self.segment, initial: Self.clear) == "clear: its init segment names no encryption")
        for bytes in [[], [1], Array("WEBVTT\n\nabc".utf8), [0x47] + pattern(500)] as [[UInt8]] {
            #expect(try verdict(bytes) == "not MP4")
        }
    }

    @Test("a segment's own moov counts, and its init segment is not looked at")
    func ownMoov() throws {
        let source = try ViewPlace().source(of: Self.protected + Self.segment)
        let verdict = try Mp4Plan.read(source, .init(directory: [], given: []), Mp4Work()) { () throws(ViewError) in
            throw .malformed("asked")
        }
        guard case .protected = verdict else { throw TestFailure("\(verdict)") }
    }

    @Test("a file and a segment can begin with a box of any type", arguments: ["uuid", "ssix", "sidx", "emsg", "free"])
    func beginnings(type: String) throws {
        let box = Boxes.box(type, [UInt8](repeating: 1, count: 20))
        #expect(try verdict(box + Self.protected) == #"protected: ["11"]"#)
        #expect(try verdict(box + Self.segment, initial: box + Self.protected) == #"protected: ["11"]"#)
    }

    @Test("an init segment that is not one is an error, never clear")
    func unusable() throws {
        let cut = Self.protected.dropLast(9)
        let cases: [([UInt8], Range<UInt64>?, String)] = [
            ([], nil, "it is empty"), (Self.protected, 9..<9, "it is empty"),
            (Array("<html>404 Not Found</html>".utf8), nil, "it is not MP4"), ([0, 0, 0], nil, "it is not MP4"),
            (Array(cut), nil, "the moov at \(Boxes.ftyp.count) has"), (Boxes.ftyp, nil, "it has no moov"),
            (Self.segment, nil, "it has no moov"), (Self.segment + Self.protected, nil, "it has no moov"),
            (Boxes.ftyp + [UInt8](repeating: 3, count: 3), nil, "it has no moov"),
            (Boxes.ftyp + [0, 0, 0, 3] + pattern(90), nil, "there is no box at \(Boxes.ftyp.count)"),
            (Self.clear + Self.protected, nil, "it has several moov"),
            (Self.protected, 0..<UInt64(cut.count), "the moov at \(Boxes.ftyp.count) has"),
            (Self.protected, 1..<UInt64(cut.count), "it is not MP4"),
            (Self.protected, 0..<UInt64(Self.protected.count + 1), "its bytes 0-\(Self.protected.count + 1) of a file"),
        ]
        for (bytes, range, reason) in cases {
            let found = malformed(try verdict(Self.segment, initial: bytes, range))
            #expect(found?.hasPrefix("the init segment is unusable: " + reason) == true, "\(found ?? "")")
        }
        #expect(malformed(try verdict(Self.segment))?.hasPrefix("there is no init segment") == true)
    }

    @Test("an init segment at a byte range is read from that range alone")
    func ranges() throws {
        let (one, two) = (Self.protected, Boxes.ftyp + Boxes.moov(Boxes.track(Boxes.protectedEntry(key: 0x22))))
        let bytes = pattern(777) + one + two + Self.clear
        let (first, second) = (UInt64(777), UInt64(777 + one.count))
        let third = second + UInt64(two.count)
        #expect(try verdict(Self.segment, initial: bytes, first..<second) == #"protected: ["11"]"#)
        #expect(try verdict(Self.segment, initial: bytes, second..<third) == #"protected: ["22"]"#)
        #expect(try verdict(Self.segment, initial: bytes, third..<UInt64(bytes.count)).hasPrefix("clear"))
        #expect(malformed(try verdict(Self.segment, initial: bytes, first..<third)) != nil)
    }

    @Test("boxes of encrypted samples in a track without encryption are an error")
    func contradictions() throws {
        let saiz = Boxes.full("saiz", 0, [0], Boxes.numbers(0))
        let saio = Boxes.full("saio", 1, Array("cenc".utf8), Boxes.numbers(0, 0))
        let piff = Boxes.box(
            "uuid", [0xA2, 0x39, 0x4F, 0x52, 0x5A, 0x9B, 0x4F, 0x14, 0xA2, 0x44, 0x6C, 0x42, 0x7C, 0x64, 0x8D, 0xF4])
        let others = Boxes.full("saiz", 1, Array("abcd".utf8), Boxes.numbers(0), [0], Boxes.numbers(0))
        for box in [Self.senc, saiz, saio, piff] {
            let fragment = Boxes.fragment(box, media: 40)
            for body in [{ try verdict(fragment, initial: Self.clear) }, { try verdict(Self.clear + fragment) }] {
                let found = malformed(try body())
                #expect(found?.contains("a track without encryption has the box") == true, "\(found ?? "")")
            }
            let tables = Boxes.noSamples + box
            let moov = Boxes.moov(Boxes.track(Boxes.clearEntry, tables: tables))
            #expect(malformed(try verdict(Boxes.ftyp + moov))?.contains("without encryption") == true)
        }
        #expect(try verdict(Boxes.fragment(others), initial: Self.clear).hasPrefix("clear"))
    }

    @Test("a clear track of an encrypted film has no boxes of encrypted samples, in any fragment")
    func contradictoryFragment() throws {
        let moov = Boxes.moov(Boxes.track(Boxes.protectedEntry()), Boxes.track(Boxes.clearEntry, number: 2))
        let fragments = Boxes.fragment(number: 2, media: 50) + Boxes.fragment(Self.senc, number: 2, media: 50)
        let bytes = Boxes.ftyp + moov + fragments
        let source = try ViewPlace().source(of: bytes)
        let index = try protectedPlan(of: source).index(source)
        _ = try index.fragment(at: UInt64(Boxes.ftyp.count + moov.count))
        let found = malformed(try index.fragment(at: UInt64(bytes.count - 1)))
        #expect(found?.contains("a track without encryption has the box senc") == true, "\(found ?? "")")
    }

    @Test("a file of several init segments shows each of them without its encryption")
    func severalInitSegments() throws {
        let bytes = Self.protected + Self.clear + Self.protected
        let place = try ViewPlace()
        let source = try place.source(of: bytes)
        let plan = try protectedPlan(of: source)
        #expect(try plan.keyNames(source).isEmpty)
        let content = ContentKeys([], plan.naming, from: nil, waits: false)
        let file = ChainedFile(
            source: source, .samples(try plan.index(source), content), keys: [], token: 1, cache: place.cache,
            counters: place.counters)
        let shown = try place.read(file, bytes.count + 1, at: 0)
        func count(_ type: String, in bytes: [UInt8]) -> Int {
            bytes.indices.count { bytes[$0...].starts(with: type.utf8) }
        }
        #expect(shown.count == bytes.count)
        #expect([count("encv", in: bytes), count("sinf", in: bytes)] == [2, 2])
        #expect([count("encv", in: shown), count("sinf", in: shown), count("avc1", in: shown)] == [0, 0, 5])
        for media in [Boxes.fragment(media: 9), Boxes.box("mdat", [1, 2, 3])] {
            let reason = malformed(try verdict(bytes + media))
            #expect(reason == "there is a second moov at \(Self.protected.count)")
        }
    }
}

/// Returns the plan of an encrypted file.
func protectedPlan(of source: SourceFile, _ work: Mp4Work = Mp4Work()) throws -> Mp4Plan {
    guard case .protected(let plan) = try Mp4Plan.read(source, .init(directory: [], given: []), work) else {
        throw TestFailure("not protected")
    }
    return plan
}
