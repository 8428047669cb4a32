import LinuxSystem
import Synchronization
import Testing

@testable import ViewFormats

/// Decisions caused by several playlists, changes on the disk and odd tags.
@Suite struct HlsDecisionTests {
    private static let key = "#EXT-X-KEY:METHOD=AES-128,URI=\"k\",IV=0x1"
    private static let implied = "#EXT-X-KEY:METHOD=AES-128,URI=\"k\""

    private func segments(_ uris: String...) -> String { uris.map { "#EXTINF:1,\n\($0)" }.joined(separator: "\n") }

    @Test("Values of an unknown tag that overlap each other are not rewritten")
    func overlapping() throws {
        for value in ["30 ads/2.ts", "a=1,b=/x/2.ts", "2.ts 2.ts", "\"x/2.ts\""] {
            let source = try HlsSource(["1.ts", "2.ts"])
            try source.write("l.m3u8", playlist(Self.key, segments("1.ts"), "#EXT-X-FOO:\(value)"))
            try source.index.scan()
            let text = try source.rendered("l.m3u8")
            #expect(text.hasSuffix("\(Self.key)\n#EXT-X-FOO:\(value)\n"))
            #expect(source.index.left().count == 1)
        }
    }

    @Test(
        "An equals sign may stand before a URI of an unknown tag, or in it",
        arguments: ["", "SRC=", "a=b=", "a=b,SRC="])
    func equalsSigns(attribute: String) throws {
        for (quote, name) in [("", "2.ts?t=1"), ("\"", "2.ts?t=1"), ("\"", "2, 3.ts?t=1")] {
            let source = try HlsSource(["1.ts", name])
            let tag = "#EXT-X-FOO:\(attribute)\(quote)\(name)\(quote)"
            try source.write("l.m3u8", playlist(Self.key, segments("1.ts"), tag))
            try source.index.scan()
            // No segment is this file, so it stays encrypted under its key line.
            #expect(try source.rendered("l.m3u8").hasSuffix("\(Self.key)\n\(tag)\n"), "\(tag)")
        }
    }

    @Test("A line without a key does not make plaintext of what another line cannot decrypt")
    func plainBesideUnusable() throws {
        for method in ["METHOD=SAMPLE-AES-CTR,URI=\"k\"", "METHOD=AES-128,URI=\"k\",KEYFORMAT=\"com.widevine\""] {
            let source = try HlsSource(["1.ts"])
            try source.write("a.m3u8", playlist("#EXT-X-KEY:\(method)", segments("1.ts")))
            try source.write("b.m3u8", playlist(segments("1.ts")))
            try source.index.scan()
            #expect(try source.content("1.ts").hasPrefix("malformed: a.m3u8:2"))
            #expect(try source.rendered("a.m3u8") == source.text("a.m3u8"))
            #expect(source.index.left().map(\.path) == [Array("a.m3u8".utf8)])
        }
    }

    @Test("An I-frame playlist alone does not tell the vector of a key without one")
    func framesAlone() throws {
        let source = try HlsSource(["1.ts", "2.ts"])
        let frames = ["1.ts", "2.ts"].map { "#EXTINF:1,\n#EXT-X-BYTERANGE:5@7\n\($0)" }.joined(separator: "\n")
        try source.write("i.m3u8", playlist("#EXT-X-I-FRAMES-ONLY", Self.implied, frames))
        try source.index.scan()
        #expect(try source.content("2.ts").contains("no media playlist says which one it is"))
        #expect(try source.rendered("i.m3u8") == source.text("i.m3u8"))
        // Both playlists name a late segment.
        try source.write("m.m3u8", playlist(Self.implied, segments("1.ts", "2.ts", "3.ts")))
        source.index.refresh(Array("m.m3u8".utf8))
        try source.write(
            "i.m3u8",
            playlist("#EXT-X-I-FRAMES-ONLY", Self.implied, frames, "#EXTINF:1,\n#EXT-X-BYTERANGE:5@7\n3.ts"))
        source.index.refresh(Array("i.m3u8".utf8))
        try source.write(["3.ts"])
        #expect(try source.content("3.ts") == ":k 2")
        #expect(try source.rendered("i.m3u8").contains("EXT-X-KEY") == false)
    }

    @Test("An update of a playlist is refused, also without a key line")
    func update() throws {
        let source = try HlsSource(["1.ts", "2.ts"])
        try source.write("l.m3u8", playlist("#EXT-X-SKIP:SKIPPED-SEGMENTS=5", segments("1.ts", "2.ts")))
        try source.index.scan()
        #expect(try source.content("1.ts").contains("EXT-X-SKIP"))
        try source.write("m.m3u8", playlist(Self.key, segments("1.ts")))
        source.index.refresh(Array("m.m3u8".utf8))
        #expect(try source.content("1.ts") == ":k 1")
    }

    @Test("A segment that leaves a live playlist is named")
    func leaves() throws {
        let source = try HlsSource(["1.ts", "2.ts"])
        try source.write("l.m3u8", playlist(Self.key, segments("1.ts", "2.ts")))
        try source.index.scan()
        try source.write("l.m3u8", playlist(Self.key, segments("2.ts")))
        source.index.refresh(Array("l.m3u8".utf8))
        #expect(source.problems() == ["1.ts: no playlist names it, and it looks encrypted: it stays as it is"])
        #expect(source.index.left().count == 1)
    }

    @Test("A file that has got another one's inode is what its own playlist says")
    func inodeOfAnother() throws {
        let source = try HlsSource(["v1.ts", "a1.ts"])
        try source.write("video.m3u8", playlist(Self.key, segments("v1.ts")))
        let other = Self.key.replacing("\"k\"", with: "\"j\"")
        try source.write("audio.m3u8", playlist(other, segments("a1.ts")))
        try source.index.scan()
        try source.run("mv v1.ts a2.ts")
        try source.write("audio.m3u8", playlist(other, segments("a1.ts", "a2.ts")))
        #expect(try source.rendered("audio.m3u8").contains("EXT-X-KEY") == false)
        #expect(try source.content("a2.ts") == ":j 1")
    }

    @Test("Playlists that are gone are forgotten, though nobody asks for their names")
    func gone() throws {
        let source = try HlsSource(["1.ts"], maximumSegments: 3)
        for number in 0..<200 {
            try source.write("\(number).m3u8", playlist(Self.key, segments("1.ts")))
            source.index.refresh(Array("\(number).m3u8".utf8))
            #expect(try source.content("\(number).m3u8").hasPrefix("playlist"))
            try source.run("rm \(number).m3u8")
        }
        #expect(source.index.state.withLock { $0.playlists.count } < 70)
    }

    @Test("No defects: a part of a segment that was saved without its query, a gap, a tag of a player")
    func noDefects() throws {
        let source = try HlsSource(["1.ts"])
        let text = playlist(
            Self.key, "#EXT-X-PART:URI=\"1.ts?t=1\",BYTERANGE=\"16@0\"", segments("1.ts?t=1"),
            "#EXTVLCOPT:http-referrer=https://h/x.html", "#EXT-X-GAP", segments("2.ts"))
        try source.write("l.m3u8", text)
        try source.index.scan()
        #expect(try source.content("1.ts") == ":k 1")
        #expect(try source.rendered("l.m3u8").contains("EXT-X-KEY") == false)
        #expect(source.problems() == [] && source.index.left().isEmpty)
    }

    @Test("Init segments are compared by what is in them")
    func initSegments() throws {
        let source = try HlsSource()
        let initial = Mp4Boxes.ftyp + Mp4Boxes.moov(Mp4Boxes.track(Mp4Boxes.protectedEntry()))
        for name in ["i.mp4", "copy.mp4"] { try source.write(name, initial) }
        try source.write("other.mp4", Mp4Boxes.ftyp + Mp4Boxes.moov(Mp4Boxes.track(Mp4Boxes.protectedEntry(key: 0x22))))
        try source.write("1.mp4", Mp4Boxes.fragment(media: 40))
        let key = "#EXT-X-KEY:METHOD=SAMPLE-AES,URI=\"k\""
        for (number, map) in ["i.mp4", "./i.mp4", "copy.mp4"].enumerated() {
            try source.write("\(number).m3u8", playlist(key, "#EXT-X-MAP:URI=\"\(map)\"", segments("1.mp4")))
        }
        try source.index.scan()
        #expect(try source.content("1.mp4").hasPrefix("samples k "))
        try source.write("3.m3u8", playlist(key, "#EXT-X-MAP:URI=\"other.mp4\"", segments("1.mp4")))
        source.index.refresh(Array("3.m3u8".utf8))
        #expect(try source.content("1.mp4").contains("contradict each other"))
    }
}
