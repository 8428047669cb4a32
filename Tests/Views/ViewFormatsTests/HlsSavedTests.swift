import Testing

@testable import ViewFormats

/// Playlists as people save them, with files missing or elsewhere than their URIs say.
@Suite struct HlsSavedTests {
    private static let key = "#EXT-X-KEY:METHOD=AES-128,URI=\"k\",IV=0x1"
    private static let none = "#EXT-X-KEY:METHOD=NONE"

    /// Bytes like those of a segment.
    private static let ciphertext: [UInt8] = (0..<4096).map { UInt8(truncatingIfNeeded: ($0 &* 2_654_435_761) >> 13) }

    private func segments(_ uris: [String]) -> String { uris.map { "#EXTINF:1,\n\($0)" }.joined(separator: "\n") }

    @Test(
        "A segment beside the playlist is decrypted whatever its URI is, and its line leads to it",
        arguments: [
            ("https://h/x/1.ts", "1.ts", "1.ts"), ("https://h/x/1.ts?token=a&t=3", "1.ts", "1.ts"),
            ("//h/1.ts", "1.ts", "1.ts"), ("/x/1.ts", "1.ts", "1.ts"), ("file:///x/1.ts", "1.ts", "1.ts"),
            ("{$none}/1.ts", "1.ts", "1.ts"), ("{$base}/1.ts", "1.ts", "1.ts"), ("sub/1.ts", "1.ts", "1.ts"),
            ("https://h/a%20b.ts", "a b.ts", "a b.ts"), ("https://h/a%20b.ts", "a%20b.ts", "a%20b.ts"),
            ("https://h/1.ts?t=1", "1.ts?t=1", "1.ts?t=1"), ("https://h/a:1.ts", "a:1.ts", "./a:1.ts"),
            // These files are where their URIs say.
            ("{$sub}/1.ts", "d/1.ts", "{$sub}/1.ts"), ("file:d/1.ts", "d/1.ts", "file:d/1.ts"),
        ])
    func elsewhere(_ uri: String, _ file: String, _ shown: String) throws {
        let source = try HlsSource([file])
        let defines = "#EXT-X-DEFINE:NAME=\"base\",VALUE=\"https://h/y\"\n#EXT-X-DEFINE:NAME=\"sub\",VALUE=\"d\"\n"
        let map = "#EXT-X-MAP:URI=\"\(uri)\",X=1"
        try source.write("l.m3u8", playlist(defines + Self.key, map, segments([uri])))
        try source.index.scan()
        #expect(try source.content(file) == ":k 1")
        let expected = playlist(defines + "#EXT-X-MAP:URI=\"\(shown)\",X=1", segments([shown]))
        #expect(try source.rendered("l.m3u8") == String(decoding: expected, as: UTF8.self))
        #expect(source.problems() == [] && source.index.left().isEmpty)
    }

    @Test("Whatever is left is under its key lines and named; the rest is decrypted under none")
    func left() throws {
        let source = try HlsSource(["1.ts", "3.ts"])
        let uris = ["https://h/1.ts", "https://h/2.ts", "3.ts", "https://h/4.ts?token=secret", "{$x}"]
        try source.write("l.m3u8", playlist(Self.key, segments(uris)))
        try source.index.scan()
        let parts = [
            segments(["1.ts"]), "#EXTINF:1,", Self.key, uris[1], "#EXTINF:1,", Self.none, "3.ts", "#EXTINF:1,",
            Self.key,
        ]
        let expected = (["#EXTM3U"] + parts + [uris[3], segments([uris[4]])]).joined(separator: "\n") + "\n"
        #expect(try source.rendered("l.m3u8") == expected)
        let end = ": it stays as it is, with its key lines"
        #expect(
            source.problems() == [
                "l.m3u8:6: https://h/2.ts: there is no file 2.ts beside the playlist\(end)",
                "l.m3u8:10: https://h/4.ts?…: there is no file 4.ts beside the playlist\(end)",
                "l.m3u8:12: {$x}: not relative to the playlist\(end)",
            ])
        #expect(
            source.index.left().map(\.text) == [
                "encrypted, and not decrypted: line 6, the first of 3: 'vaultfs status' has the reasons"
            ])
        // Now the missing file arrives.
        try source.write(["2.ts"])
        #expect(try source.content("2.ts") == ":k 1")
        #expect(try source.rendered("l.m3u8").contains("\n2.ts\n"))
    }

    @Test("A playlist with nothing in the tree stays as it is, byte for byte")
    func remote() throws {
        let source = try HlsSource()
        let text = playlist(
            "#EXT-X-SESSION-KEY:METHOD=AES-128,URI=\"k\"", Self.key, "#EXT-X-MAP:URI=\"https://h/i\"",
            segments(["https://h/1.ts"]), Self.none, segments(["https://h/2.ts"]), Self.key,
            "#EXT-X-PART:URI=\"https://h/p\"")
        try source.write("l.m3u8", text)
        try source.index.scan()
        #expect(try source.rendered("l.m3u8") == source.text("l.m3u8"))
    }

    @Test("Files of one name under several URIs are left: the one beside the playlist can be any of them")
    func ambiguous() throws {
        let source = try HlsSource(["1.ts", "2.ts", "3.mp4"])
        let uris = ["https://a/1.ts", "https://b/1.ts", "2.ts", "https://a/2.ts"]
        let ranges =
            "#EXTINF:1,\n#EXT-X-BYTERANGE:16@0\nhttps://h/3.mp4?t=1\n#EXTINF:1,\n#EXT-X-BYTERANGE:16@16\nhttps://h/3.mp4?t=2"
        try source.write("l.m3u8", playlist(Self.key, segments(uris), ranges))
        try source.index.scan()
        #expect(try source.content("1.ts") == "plain")
        #expect(try source.content("2.ts") == ":k 1")
        #expect(try source.content("3.mp4") == "0..<16 :k 1, 16..<32 :k 1")
        #expect(source.problems().count == 3)
        #expect(source.problems().allSatisfy { $0.contains("other URIs of the playlist lead to ") })
    }

    @Test("Parts and other tags are shown with the segment that they belong to, otherwise left")
    func parts() throws {
        let source = try HlsSource(["1.mp4", "2.mp4", "p.mp4"])
        let parts = ["#EXT-X-PART:URI=\"1.mp4\",BYTERANGE=\"16@0\"", "#EXT-X-PART:URI=\"https://h/1.mp4\""]
        try source.write(
            "l.m3u8",
            playlist(
                Self.key, parts[0], segments(["1.mp4"]), "#EXT-X-PART:URI=\"p.mp4\"", "#EXT-X-PRELOAD-HINT:URI=\"gone\""
            ))
        try source.index.scan()
        let expected = playlist(
            parts[0], segments(["1.mp4"]), Self.key, "#EXT-X-PART:URI=\"p.mp4\"", "#EXT-X-PRELOAD-HINT:URI=\"gone\"")
        #expect(try source.rendered("l.m3u8") == String(decoding: expected, as: UTF8.self))
        #expect(try source.content("p.mp4") == "plain")
        #expect(
            source.problems() == [
                "l.m3u8:6: p.mp4: no segment, and not decrypted: it stays as it is, with its key lines",
                "l.m3u8:7: gone: there is no such file: it stays as it is, with its key lines",
            ])
        #expect(source.index.left().count == 1)
    }

    @Test("The last part of a segment ends where its plaintext ends")
    func lastPart() throws {
        let source = try HlsSource(["1.mp4"])
        let part = "#EXT-X-PART:URI=\"1.mp4\",BYTERANGE="
        try source.write("l.m3u8", playlist(Self.key, "\(part)\"16@0\"", "\(part)\"48@16\"", segments(["1.mp4"])))
        try source.index.scan()
        #expect(try source.content("l.m3u8") == "playlist ?")
        let content = try #require(try source.index.open(Array("l.m3u8".utf8)))
        #expect(content.needed.count == 1)
        let text = try content.rendered { (_, range) in range.lowerBound..<min(range.upperBound, 50) }
        #expect(String(decoding: text, as: UTF8.self).contains("\(part)\"34@16\""))
    }

    @Test("A master playlist leads to the playlists beside it")
    func master() throws {
        let source = try HlsSource()
        try source.write("v.m3u8", playlist())
        let media = "#EXT-X-MEDIA:TYPE=AUDIO,URI=\"https://h/gone.m3u8\""
        let session = "#EXT-X-SESSION-KEY:METHOD=AES-128,URI=\"k\""
        try source.write(
            "m.m3u8",
            playlist(session, "#EXT-X-STREAM-INF:X=1", "https://h/a/v.m3u8", "#EXT-X-STREAM-INF:X=1", "/m.m3u8", media))
        try source.index.scan()
        let expected = playlist(session, "#EXT-X-STREAM-INF:X=1", "v.m3u8", "#EXT-X-STREAM-INF:X=1", "/m.m3u8", media)
        #expect(try source.rendered("m.m3u8") == String(decoding: expected, as: UTF8.self))
        #expect(source.problems() == [])
    }

    @Test("Files beside segments that look encrypted, and that no playlist names, are named")
    func strays() throws {
        let source = try HlsSource()
        for name in ["2.ts", "3.ts", "k.bin", "notes.txt", "sub/4.ts"] { try source.write(name, Self.ciphertext) }
        try source.write("1.ts", Self.ciphertext)
        try source.write("text.ts", Array(String(repeating: "let x = 1;\n", count: 400).utf8.prefix(4096)))
        var packets = Self.ciphertext
        for start in stride(from: 0, to: packets.count, by: 188) { packets[start] = 0x47 }
        try source.write("clear.ts", packets)
        try source.write("l.m3u8", playlist(Self.key, segments(["1.ts"])))
        try source.index.scan()
        source.index.findStrays()
        let text = "no playlist names it, and it looks encrypted: it stays as it is"
        #expect(source.problems() == ["2.ts: \(text)", "3.ts: \(text)", "sub/4.ts: \(text)"])
        let lines = ["no playlist names it, and it looks encrypted, the first of 2", String(text.prefix { $0 != ":" })]
        #expect(source.index.left().map(\.text) == lines)
        // While a segment is missing, any file may be it.
        try source.write("other.m3u8", playlist(Self.key, segments(["gone.ts"])))
        source.index.refresh(Array("other.m3u8".utf8))
        source.index.findStrays()
        let named = source.problems().filter { $0.hasSuffix(text) }.map { $0.prefix { $0 != ":" } }
        #expect(named == ["2.ts", "3.ts", "k.bin", "notes.txt", "sub/4.ts"])
        try source.run("rm other.m3u8")
        source.index.refresh(Array("other.m3u8".utf8))
        source.index.findStrays()
        // Another playlist names one of the files.
        try source.write("m.m3u8", playlist(Self.key, segments(["2.ts"])))
        source.index.refresh(Array("m.m3u8".utf8))
        #expect(source.problems() == ["3.ts: \(text)", "sub/4.ts: \(text)"])
    }

    @Test("A segment without a file name does not hide the ending of those after it")
    func endings() throws {
        let source = try HlsSource()
        for name in ["1.bin", "9.bin"] { try source.write(name, Self.ciphertext) }
        try source.write("l.m3u8", playlist(Self.key, segments(["http://host.bin", "1.bin"])))
        try source.index.scan()
        source.index.findStrays()
        #expect(source.index.left().contains { $0.path == Array("9.bin".utf8) })
    }

    @Test("A look at files that ends before the last one is named")
    func looks() throws {
        let source = try HlsSource()
        try source.write("1.ts", Self.ciphertext)
        try source.write("l.m3u8", playlist(Self.key, segments(["1.ts"])))
        try source.run("mkdir many; cd many; seq \(HlsIndex.maximumLooks) | sed 's/$/.ts/' | xargs touch")
        try source.index.scan()
        source.index.findStrays()
        #expect(source.index.left().isEmpty)
        try source.run("touch many/last.ts")
        source.index.findStrays()
        #expect(
            source.index.left().map(\.text) == [
                "not looked at, after \(HlsIndex.maximumLooks) files beside no encrypted segment"
            ])
    }

    @Test("A map whose range has the length of the plaintext reaches to the next range")
    func plainLength() throws {
        let source = try HlsSource()
        try source.write("f", [UInt8](repeating: 0, count: 128))
        func content(_ map: String, _ segment: String) throws -> String {
            try source.write(
                "l.m3u8",
                playlist(
                    Self.key, "#EXT-X-MAP:URI=\"f\",BYTERANGE=\"\(map)\"", "#EXTINF:1,", "#EXT-X-BYTERANGE:\(segment)",
                    "f"))
            source.index.refresh(Array("l.m3u8".utf8))
            return try source.content("f")
        }
        #expect(try content("33@0", "64@48") == "0..<48 :k 1, 48..<112 :k 1")
        #expect(try content("32@0", "64@48") == "0..<48 :k 1, 48..<112 :k 1")
        #expect(try content("32@0", "64@32") == "0..<32 :k 1, 32..<96 :k 1")
        #expect(try content("16@0", "64@48") == "0..<16 :k 1, 48..<112 :k 1")
    }
}
