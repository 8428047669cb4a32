import TestSupport
import Testing

@testable import ViewFormats

@Suite struct PlaylistTests {
    @Test("Segments, keys, and a segment's number as its vector")
    func keys() throws {
        let text = playlist(
            "#EXT-X-MEDIA-SEQUENCE:7", "#EXTINF:2,", "plain.ts",
            "#EXT-X-KEY:METHOD=AES-128,URI=\"k,1.key\",IV=0x0A", "#EXTINF:2,", "a.ts", "#EXTINF:2,", "b.ts",
            "#EXT-X-KEY:METHOD=AES-128,URI=\"k2\"", "#EXTINF:2,", "c.ts", "#EXT-X-DISCONTINUITY", "#EXTINF:2,", "d.ts",
            "#EXT-X-KEY:METHOD=NONE", "#EXTINF:2,", "e.ts", "#EXT-X-ENDLIST")
        #expect(
            try references(text) == [
                "4 segment plain.ts", "7 segment a.ts k,1.key a", "9 segment b.ts k,1.key a", "12 segment c.ts k2 a",
                "15 segment d.ts k2 b", "18 segment e.ts",
            ])
        let parsed = try Playlist.parse(text)
        #expect(parsed.kind == .media && parsed.fault == nil && parsed.complaint == nil)
        #expect(parsed.keys == [Array("k,1.key".utf8), Array("k2".utf8)])
    }

    @Test(
        "Vectors: any case, fewer digits, a sequence number that overflows",
        arguments: [
            ("IV=0xFfEeDdCcBbAa99887766554433221100", "ffeeddccbbaa99887766554433221100"),
            ("IV=0X1", "1"), ("KEYFORMAT=\"identity\"", "10000000000000000"),
        ])
    func vectors(_ attribute: String, _ expected: String) throws {
        let text = playlist(
            "#EXT-X-MEDIA-SEQUENCE:18446744073709551615", "#EXTINF:1,", "a",
            "#EXT-X-KEY:METHOD=AES-128,URI=\"k\",\(attribute)",
            "#EXTINF:1,", "b")
        #expect(try references(text) == ["4 segment a", "7 segment b k \(expected)"])
    }

    @Test("Only a line after an EXTINF is a segment, and is counted")
    func counting() throws {
        let text = playlist(
            "#EXT-X-KEY:METHOD=AES-128,URI=\"k\"", "stray.ts", "#EXTINF:1,", "", "# a comment", "a", "b", "#EXTINF:1,",
            "c")
        #expect(
            try references(text) == ["3 other stray.ts k 0", "7 segment a k 0", "8 other b k 1", "10 segment c k 1"])
    }

    @Test("A gap has a number of its own, so it counts for the vectors of the segments after it")
    func gaps() throws {
        let text = playlist(
            "#EXT-X-KEY:METHOD=AES-128,URI=\"k\"", "#EXTINF:1,", "a", "#EXT-X-GAP", "#EXTINF:1,", "b", "#EXTINF:1,", "c"
        )
        #expect(try references(text) == ["4 segment a k 0", "7 segment b k 1", "9 segment c k 2"])
    }

    @Test("Byte ranges continue the previous one of the same resource")
    func byteRanges() throws {
        let text = playlist(
            "#EXT-X-MAP:URI=\"a.mp4\",BYTERANGE=\"100@16\"", "#EXT-X-BYTERANGE:32@200", "#EXTINF:1,", "a.mp4",
            "#EXTINF:1,", "#EXT-X-BYTERANGE:48", "a.mp4", "#EXT-X-MAP:BYTERANGE=\"5\",URI=\"a.mp4\"", "#EXTINF:1,", "b")
        #expect(
            try references(text) == [
                "2 map a.mp4 16..<116", "5 segment a.mp4 200..<232", "8 segment a.mp4 232..<280", "9 map a.mp4 0..<5",
                "11 segment b",
            ])
    }

    @Test("A byte range without an offset, and no previous one of the same resource, is a fault")
    func noOffset() throws {
        let key = "#EXT-X-KEY:METHOD=AES-128,URI=\"k\""
        let first = ["#EXTINF:1,\n#EXT-X-BYTERANGE:16@0\na", "#EXTINF:1,\na"]
        let then = "#EXTINF:1,\n#EXT-X-BYTERANGE:16"
        #expect(try Playlist.parse(playlist(key, first[0], then, "a")).fault == nil)
        #expect(try Playlist.parse(playlist(key, first[0], then, "b")).fault?.line == 8)
        #expect(try Playlist.parse(playlist(key, first[1], then, "a")).fault?.line == 7)
    }

    @Test("A map uses the key in force, and without an IV the number of the segment after it")
    func maps() throws {
        let text = playlist(
            "#EXT-X-MEDIA-SEQUENCE:5", "#EXT-X-MAP:URI=\"plain\"", "#EXT-X-KEY:METHOD=AES-128,URI=\"k\"",
            "#EXT-X-MAP:URI=\"i\"", "#EXTINF:1,", "a", "#EXT-X-MAP:URI=\"j\"", "#EXTINF:1,", "b")
        #expect(
            try references(text) == [
                "3 map plain", "5 map i k 5", "7 segment a k 5", "8 map j k 6", "10 segment b k 6",
            ])
    }

    @Test("I-frame playlists have byte ranges of the plaintext")
    func frames() throws {
        let text = playlist(
            "#EXT-X-I-FRAMES-ONLY", "#EXT-X-KEY:METHOD=AES-128,URI=\"k\",IV=0x1", "#EXTINF:1,", "#EXT-X-BYTERANGE:7@3",
            "a",
            "#EXTINF:1,", "b")
        #expect(try references(text) == ["6 frame a 3..<10 k 1", "8 segment b k 1"])
    }

    @Test("A master playlist has no segments")
    func master() throws {
        let text = playlist(
            "#EXT-X-SESSION-KEY:METHOD=SAMPLE-AES,URI=\"skd://x\"",
            "#EXT-X-MEDIA:TYPE=AUDIO,GROUP-ID=\"a,b\",URI=\"audio.m3u8\"", "#EXT-X-MEDIA:TYPE=CLOSED-CAPTIONS",
            "#EXT-X-STREAM-INF:BANDWIDTH=1,CODECS=\"x,y\"", "v.m3u8",
            "#EXT-X-I-FRAME-STREAM-INF:BANDWIDTH=1,URI=\"i.m3u8\"")
        #expect(
            try references(text) == ["3 playlist audio.m3u8", "6 playlist v.m3u8", "7 playlist i.m3u8"])
        #expect(try Playlist.parse(text).kind == .master)
        #expect(try Playlist.parse(text).fault == nil)
    }

    @Test("A key of another format beside ours does not matter; alone it does")
    func formats() throws {
        let foreign = "#EXT-X-KEY:METHOD=AES-128,URI=\"x\",KEYFORMAT=\"com.example\""
        let both = playlist(foreign, "#EXT-X-KEY:METHOD=AES-128,URI=\"k\",IV=0x1", "#EXTINF:1,", "a")
        #expect(try references(both) == ["5 segment a k 1"])
        #expect(try Playlist.parse(both).fault == nil)
        let alone = try Playlist.parse(playlist(foreign, "#EXTINF:1,", "a"))
        guard case .unusable(let reason) = alone.references.first?.encryption else { throw TestFailure("\(alone)") }
        #expect(reason.line == 2 && reason.text.contains("com.example") && alone.fault == nil)
        let ended = playlist(foreign, "#EXT-X-KEY:METHOD=NONE", "#EXTINF:1,", "a")
        #expect(try references(ended) == ["5 segment a"])
    }

    @Test(
        "A key that cannot be used counts for the segments under it, and names its line",
        arguments: [
            "#EXT-X-KEY:METHOD=AES-192,URI=\"k\"", "#EXT-X-KEY:METHOD=SAMPLE-AES-CTR,URI=\"k\"",
            "#EXT-X-KEY:METHOD=AES-256-CTR,URI=\"k\"", "#EXT-X-KEY:METHOD=aes-128,URI=\"k\"", "#EXT-X-KEY:URI=\"k\"",
            "#EXT-X-KEY:", "#EXT-X-KEY:METHOD=AES-128", "#EXT-X-KEY:METHOD=AES-128,URI=\"\"",
            "#EXT-X-KEY:METHOD=AES-128,URI=\"k", "#EXT-X-KEY:METHOD=AES-128,URI=\"k\"x",
            "#EXT-X-KEY:METHOD=AES-128,URI=\"k\",IV=0x", "#EXT-X-KEY:METHOD=AES-128,URI=\"k\",IV=12",
            "#EXT-X-KEY:METHOD=AES-128,URI=\"k\",IV=0x-1", "#EXT-X-KEY:METHOD=AES-128,URI=\"k\",IV=0x0g",
            "#EXT-X-KEY:METHOD=AES-128,URI=\"k\",IV=0x000000000000000000000000000000001",
            "#EXT-X-KEY:METHOD=AES-128,URI=\"\(String(repeating: "k", count: 8193))\"",
        ])
    func faultyKeys(_ line: String) throws {
        let text = playlist("#EXTINF:1,", "a", line, "#EXTINF:1,", "b", "#EXT-X-KEY:METHOD=NONE", "#EXTINF:1,", "c")
        #expect(try references(text) == ["3 segment a", "6 segment b unusable: line 4", "9 segment c"])
        #expect(try Playlist.parse(text).fault == nil)
        // In the text, clear parts are outside the faulty line's reach, and the others are under it.
        let rendered = try Playlist.parse(text).rendered { (number, _) in ShownReference(needsKeys: number == 1) }
        #expect(rendered == text)
    }

    @Test(
        "Invalid or too large numbers are faults in playlists with keys, and warnings in those without",
        arguments: [
            "#EXT-X-BYTERANGE:1", "#EXT-X-BYTERANGE:-1@0", "#EXT-X-BYTERANGE:1@-1", "#EXT-X-BYTERANGE:1@",
            "#EXT-X-BYTERANGE:@1", "#EXT-X-BYTERANGE:18446744073709551615@1", "#EXT-X-BYTERANGE:1@9223372036854775807",
            "#EXT-X-BYTERANGE:99999999999999999999999@0", "#EXT-X-BYTERANGE: 1@0x1",
            "#EXT-X-MAP:URI=\"m\",BYTERANGE=\"1@\"",
            "#EXT-X-MAP:URI=\"m\",BYTERANGE=\"9223372036854775807@9223372036854775807\"",
            "#EXT-X-MAP:BYTERANGE=\"1@1\"",
        ])
    func numbers(_ line: String) throws {
        let with = playlist("#EXT-X-KEY:METHOD=AES-128,URI=\"k\"", "#EXTINF:1,", line, "a")
        let without = playlist("#EXTINF:1,", line, "a")
        let (encrypted, plain) = (try Playlist.parse(with), try Playlist.parse(without))
        #expect(encrypted.fault != nil && encrypted.complaint == nil)
        #expect(plain.fault == nil && plain.complaint != nil)
        #expect(plain.renderedWithoutKeys == without)
    }

    @Test(
        "A sequence number that is none counts only for keys without an IV, and blanks around one do not matter",
        arguments: ["-1", "18446744073709551616", "", "x"])
    func sequence(_ number: String) throws {
        let key = "#EXT-X-KEY:METHOD=AES-128,URI=\"k\""
        let text = playlist(
            "#EXT-X-MEDIA-SEQUENCE:\(number)", "\(key),IV=0x1", "#EXTINF:1,", "a", key, "#EXTINF:1,", "b")
        #expect(try references(text) == ["5 segment a k 1", "8 segment b unusable: line 8"])
        #expect(try Playlist.parse(text).fault == nil)
        let blanks = playlist("#EXT-X-MEDIA-SEQUENCE: 7 ", key, "#EXTINF:1,", "a")
        #expect(try references(blanks) == ["5 segment a k 7"])
    }

    @Test("METHOD=AES-256 is the same chain with a longer key")
    func longKey() throws {
        let text = playlist("#EXT-X-KEY:METHOD=AES-256,URI=\"k\",IV=0x1", "#EXTINF:1,", "a")
        #expect(try references(text) == ["4 segment a k 1 aes-256-cbc"])
    }

    @Test("Every URI under a key is a reference: of known, unknown and future tags, and of stray lines")
    func otherTags() throws {
        let text = playlist(
            "#EXT-X-PART:URI=\"before\"", "#EXT-X-KEY:METHOD=AES-128,URI=\"k\",IV=0x1",
            "#EXT-X-PART:DURATION=1,URI=\"p\",BYTERANGE=\"8@16\"", "#EXT-X-PART:BYTERANGE=\"8\",URI=\"p\"",
            "#EXT-X-PRELOAD-HINT:TYPE=PART,URI=\"h\"", "#EXT-X-FUTURE:URI=\"u\",X-OTHER-URI=\"v\"",
            "#EXT-X-PREFETCH:https://h/f.ts", "#EXT-X-RENDITION-REPORT:URI=\"r.m3u8\"",
            "#EXT-X-DATERANGE:ID=\"1\",X-ASSET-URI=\"https://h/a\"", "#EXT-X-PROGRAM-DATE-TIME:2020-01-01T00:00:00Z",
            "#EXTINF:1,", "s")
        #expect(
            try references(text) == [
                "4 other p 16..<24 k 1", "5 other p 24..<32 k 1", "6 other h k 1", "7 other u k 1", "7 other v k 1",
                "8 other https://h/f.ts k 1", "13 segment s k 1",
            ])
    }

    @Test("Variables of EXT-X-DEFINE are replaced in URIs and keys; undefined ones stay")
    func variables() throws {
        let text = playlist(
            "#EXT-X-DEFINE:NAME=\"d\",VALUE=\"sub/x\"", "#EXT-X-DEFINE:IMPORT=\"token\"",
            "#EXT-X-KEY:METHOD=AES-128,URI=\"{$d}.key\",IV=0x1", "#EXT-X-MAP:URI=\"{$d}/i\"", "#EXTINF:1,", "{$d}/a",
            "#EXTINF:1,", "{$none}/{$d}{$")
        let parsed = try Playlist.parse(text)
        let uris = parsed.references.map { String(decoding: parsed.uri(of: $0), as: UTF8.self) }
        #expect(uris == ["sub/x/i", "sub/x/a", "{$none}/sub/x{$"])
        #expect(parsed.keys == [Array("sub/x.key".utf8)])
    }

    @Test(
        "A file that does not begin with #EXTM3U is not a playlist",
        arguments: [
            "", "#EXTM3", "#EXTM3U8\n", " #EXTM3U\n", "\n#EXTM3U\n", "a.ts\n", "\u{0}", "\u{FEFF}", "#EXTM3U#EXTINF",
        ])
    func noPlaylist(_ text: String) {
        #expect(throws: PlaylistError.self) { try Playlist.parse(Array(text.utf8)) }
    }

    @Test("A playlist that is too large is refused")
    func tooLarge() throws {
        let text = playlist() + [UInt8](repeating: 10, count: Playlist.maximumSize)
        #expect(throws: PlaylistError(line: 0, text: "a playlist of more than 16 MiB")) { try Playlist.parse(text) }
    }
}
