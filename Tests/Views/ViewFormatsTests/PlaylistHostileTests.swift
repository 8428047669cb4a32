import TestSupport
import Testing

@testable import ViewFormats

@Suite struct PlaylistHostileTests {
    @Test("A hundred thousand segments are read in reasonable time", .timeLimit(.minutes(60)))
    func millionLines() throws {
        var text = playlist("#EXT-X-KEY:METHOD=AES-128,URI=\"k\"")
        let segment = Array("#EXTINF:1,\na\n".utf8)
        text.reserveCapacity(text.count + segment.count * 120_000)
        for _ in 0..<120_000 { text += segment }
        let parsed = try Playlist.parse(text)
        #expect(parsed.references.count == 120_000)
        let last = InitialVector(high: 0, low: 119_999)
        #expect(parsed.references.last?.encryption == .chain(key: 0, vector: last, cipher: .aes128CBC))
    }

    @Test("A playlist with too many segments is a fault, whatever follows", .timeLimit(.minutes(60)))
    func tooManySegments() throws {
        var text = playlist()
        let segment = Array("#EXTINF:1,\na\n".utf8)
        for _ in 0..<Playlist.maximumReferences { text += segment }
        #expect(try Playlist.parse(text).references.count == Playlist.maximumReferences)
        let parsed = try Playlist.parse(text + segment)
        #expect(parsed.fault?.text == "more than \(Playlist.maximumReferences) segments")
        #expect(parsed.references.isEmpty)
        #expect(parsed.renderedWithoutKeys.isEmpty)
    }

    @Test("A million attributes, keys and commas do no harm", .timeLimit(.minutes(60)))
    func manyAttributes() throws {
        func list(_ count: Int) -> String { (0..<count).map { "A\($0)=1," }.joined() + "URI=\"u\"" }
        #expect(try references(playlist("#EXT-X-MAP:\(list(1000))")) == ["2 map u"])
        #expect(try Playlist.parse(playlist("#EXT-X-MAP:\(list(250_000))")).complaint != nil)
        // An unparsed tag may be about encryption, whatever it is.
        let key = "#EXT-X-KEY:METHOD=AES-128,URI=\"k\""
        for value in [list(250_000), String(repeating: "a.b ", count: 250_000)] {
            let found = try Playlist.parse(playlist(key, "#EXT-X-FUTURE:\(value)")).references
            #expect(found.count == 1 && found[0].encryption != nil && !found[0].isGuess)
        }
        let keys = (0..<20_000).map { "#EXT-X-KEY:METHOD=AES-128,URI=\"k\($0)\"\n#EXTINF:1,\na\n" }.joined()
        #expect(try Playlist.parse(playlist(keys)).keys.count == 20_000)
        #expect(try Playlist.parse(playlist("#EXT-X-MAP:" + String(repeating: ",", count: 250_000))).complaint != nil)
    }

    @Test(
        "No mutation of a playlist traps; the rendered text is the original without whole lines and with other ranges")
    func mutations() throws {
        let seed = playlist(
            "#EXT-X-VERSION:7", "#EXT-X-MEDIA-SEQUENCE:18446744073709551615",
            "#EXT-X-KEY:METHOD=AES-128,URI=\"k,\",IV=0x00112233445566778899aabbccddeeff,KEYFORMAT=\"identity\"",
            "#EXT-X-MAP:URI=\"i.mp4\",BYTERANGE=\"64@0\"", "#EXTINF:2.0,title",
            "#EXT-X-BYTERANGE:9223372036854775807@16",
            "s.mp4", "#EXT-X-BYTERANGE:48", "#EXTINF:2.0,", "s.mp4", "#EXT-X-KEY:METHOD=NONE",
            "#EXT-X-STREAM-INF:A=\"b,c\"",
            "v.m3u8", "#EXT-X-I-FRAMES-ONLY", "#EXT-X-SESSION-KEY:METHOD=NONE")
        let interesting = Array("\r\n\0\",=:@#9-x \t".utf8) + [0xFF, 0xEF, 0xBB, 0xBF]
        var random = SeededGenerator(seed: 42)
        func below(_ limit: Int) -> Int { Int.random(in: 0..<limit, using: &random) }
        for _ in 0..<4000 {
            var text = seed
            for _ in 0...below(4) {
                let position = below(text.count)
                switch below(4) {
                case 0: text[position] = interesting[below(interesting.count)]
                case 1: text.insert(interesting[below(interesting.count)], at: position)
                case 2: text.removeSubrange(position..<min(text.count, position + 1 + below(8)))
                default: text.replaceSubrange(position..<position, with: text[below(text.count)...].prefix(12))
                }
            }
            guard let parsed = try? Playlist.parse(text) else { continue }
            let rendered = parsed.renderedWithoutKeys
            #expect(rendered.count <= text.count)
            // The rendered text lacks the keys, and is otherwise equivalent.
            let again = try Playlist.parse(rendered)
            #expect(
                again.keys.isEmpty && (again.fault == nil || text.contains(0)) && again.renderedWithoutKeys == rendered)
            _ = parsed.rendered { (number, _) in ShownReference(bytes: UInt64(number)..<UInt64.max) }
        }
    }

    /// A playlist with everything that the parser knows.
    private static let seed = playlist(
        "#EXT-X-VERSION:7", "#EXT-X-MEDIA-SEQUENCE: 18446744073709551615",
        "#EXT-X-DEFINE:NAME=\"d\",VALUE=\"https://h/x\"",
        "#EXT-X-KEY:METHOD=AES-128,URI=\"k,\",IV=0x00112233445566778899aabbccddeeff,KEYFORMAT=\"identity\"",
        "#EXT-X-KEY:METHOD=SAMPLE-AES,URI=\"skd://x\",KEYFORMAT=\"f\"",
        "#EXT-X-MAP:URI=\"{$d}/i.mp4\",BYTERANGE=\"719@0\"", "#EXT-X-PART:DURATION=1,URI=\"p.mp4\",BYTERANGE=\"48@16\"",
        "#EXTINF:2.0,title", "#EXT-X-BYTERANGE:64@720", "s.mp4", "#EXT-X-KEY:METHOD=NONE", "#EXTINF:2.0,", "//h/s",
        "#EXT-X-KEY:METHOD=AES-256,URI=\"data:;base64,AAAA\"", "#EXT-X-FUTURE:URI=\"a\",X-URI=\"b\"", "stray",
        "#EXTINF:1,", "l.ts", "#EXT-X-PREFETCH:http://h/p.ts")

    /// Leaves any of the playlist's references, and expects exactly these under their key lines in the rendered text.
    private func expectKeyed(_ parsed: Playlist) {
        guard parsed.fault == nil, parsed.kind == .media else { return }
        for remainder in 0..<3 {
            func needsKeys(_ number: Int) -> Bool {
                number % 3 != remainder && parsed.references[number].encryption != nil
            }
            guard let text = parsed.rendered({ (number, _) in ShownReference(needsKeys: needsKeys(number)) }),
                let again = try? Playlist.parse(text)
            else { continue }
            func uris(_ playlist: Playlist, _ isIncluded: (Int) -> Bool) -> [[UInt8]] {
                playlist.references.indices.filter(isIncluded).map { Array(playlist.text[playlist.references[$0].uri]) }
            }
            // References on one line are under its keys together.
            let lines = Set(parsed.references.indices.filter(needsKeys).map { parsed.references[$0].start })
            let expected = uris(parsed) { lines.contains(parsed.references[$0].start) }
            #expect(uris(again) { again.references[$0].encryption != nil } == expected)
        }
    }

    @Test("Every cut and every changed byte of a playlist: an error or a text in which what is left is under its keys")
    func everyByte() throws {
        for size in Self.seed.indices {
            guard let parsed = try? Playlist.parse(Array(Self.seed[..<size])) else { continue }
            expectKeyed(parsed)
        }
        for position in Self.seed.indices {
            for byte in "\",\n:#9".utf8 {
                var text = Self.seed
                text[position] = byte
                guard let parsed = try? Playlist.parse(text) else { continue }
                expectKeyed(parsed)
            }
        }
    }

    @Test("A million formats, variables and braces are read in bounded time and memory", .timeLimit(.minutes(60)))
    func bombs() throws {
        let formats = (0..<5000).map { "#EXT-X-KEY:METHOD=AES-128,URI=\"k\",KEYFORMAT=\"\($0)\"\n" }.joined()
        #expect(try Playlist.parse(playlist(formats, "#EXTINF:1,", "a")).fault?.text == "more than 16 keys at once")
        let value = String(repeating: "v", count: 1_000_000)
        let uses = String(repeating: "#EXTINF:1,\n{$v}\n", count: 500)
        let bomb = try Playlist.parse(playlist("#EXT-X-DEFINE:NAME=\"v\",VALUE=\"\(value)\"", uses))
        #expect(bomb.references.reduce(0) { $0 + ($1.expanded?.count ?? 0) } <= Playlist.maximumSize)
        let braces = String(repeating: "{$", count: 50_000)
        for end in ["", "}"] { #expect(try Playlist.parse(playlist("#EXTINF:1,", braces + end)).references.count == 1) }
    }
}
