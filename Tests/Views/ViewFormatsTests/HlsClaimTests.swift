import Testing

@testable import ViewFormats

/// Several playlists with the same file, `f`, of 64 bytes.
@Suite struct HlsClaimTests {
    private static func key(_ name: String, _ number: Int) -> String {
        "#EXT-X-KEY:METHOD=AES-128,URI=\"\(name)\",IV=0x\(number)"
    }

    private static let whole = playlist(key("k", 1), "#EXTINF:1,", "f")
    private static let otherKey = playlist(key("j", 1), "#EXTINF:1,", "f")
    private static let otherVector = playlist(key("k", 2), "#EXTINF:1,", "f")
    private static let plain = playlist("#EXTINF:1,", "f")
    private static let halves = playlist(
        key("k", 1), "#EXTINF:1,", "#EXT-X-BYTERANGE:32@0", "f", key("k", 2), "#EXTINF:1,", "#EXT-X-BYTERANGE:32", "f")
    private static let secondHalf = playlist(key("k", 2), "#EXTINF:1,", "#EXT-X-BYTERANGE:32@32", "f")
    private static let allAsRange = playlist(key("k", 1), "#EXTINF:1,", "#EXT-X-BYTERANGE:64@0", "f")
    private static let middle = playlist(key("k", 1), "#EXTINF:1,", "#EXT-X-BYTERANGE:32@16", "f")
    private static let plainMiddle = playlist("#EXTINF:1,", "#EXT-X-BYTERANGE:32@16", "f")
    private static let plainRanges = playlist(
        "#EXTINF:1,", "#EXT-X-BYTERANGE:40@0", "f", "#EXTINF:1,", "#EXT-X-BYTERANGE:8@8", "f")
    private static let frames = playlist(
        "#EXT-X-I-FRAMES-ONLY", key("k", 3), "#EXTINF:1,", "#EXT-X-BYTERANGE:5@7", "f", "#EXTINF:1,",
        "#EXT-X-BYTERANGE:5@9", "f")
    private static let otherFrames = playlist(
        "#EXT-X-I-FRAMES-ONLY", key("j", 3), "#EXTINF:1,", "#EXT-X-BYTERANGE:5@7", "f")

    private func content(_ texts: [UInt8]...) throws -> String {
        let source = try HlsSource(["f"])
        for (number, text) in texts.enumerated() { try source.write("\(number).m3u8", text) }
        try source.index.scan()
        let content = try source.content("f")
        // The index must report conflicts, and nothing else.
        #expect(source.problems().isEmpty != content.hasPrefix("malformed"))
        return content
    }

    @Test("Equal claims count as one")
    func equal() throws {
        #expect(try content(Self.whole, Self.whole) == ":k 1")
        #expect(try content(Self.whole, Self.allAsRange) == ":k 1")
        #expect(try content(Self.plain, Self.plain) == "plain")
        #expect(try content(Self.plain, Self.plainRanges, Self.plainMiddle) == "plain")
        #expect(try content(Self.halves, Self.secondHalf) == "0..<32 :k 1, 32..<64 :k 2")
        #expect(try content(Self.secondHalf) == "32..<64 :k 2")
    }

    @Test("An I-frame playlist determines the key, not the vector")
    func frames() throws {
        #expect(try content(Self.frames) == ":k 3")
        #expect(try content(Self.whole, Self.frames) == ":k 1")
        #expect(try content(Self.halves, Self.frames) == "0..<32 :k 1, 32..<64 :k 2")
        #expect(try content(Self.whole, Self.otherFrames).hasPrefix("malformed"))
        #expect(try content(Self.frames, Self.otherFrames).hasPrefix("malformed"))
        #expect(try content(Self.plain, Self.frames).hasPrefix("malformed"))
    }

    @Test("Claims that contradict each other are an error that names both lines")
    func conflicts() throws {
        let reason = "malformed: two playlist lines contradict each other on its encryption: "
        #expect(try content(Self.whole, Self.otherKey) == reason + "0.m3u8:4 and 1.m3u8:4")
        #expect(try content(Self.whole, Self.otherVector) == reason + "0.m3u8:4 and 1.m3u8:4")
        #expect(try content(Self.plain, Self.whole) == reason + "0.m3u8:3 and 1.m3u8:4")
        #expect(try content(Self.whole, Self.halves) == reason + "1.m3u8:5 and 0.m3u8:4")
        #expect(try content(Self.halves, Self.middle) == reason + "0.m3u8:5 and 1.m3u8:5")
        #expect(try content(Self.plainMiddle, Self.secondHalf) == reason + "0.m3u8:4 and 1.m3u8:5")
        #expect(try content(Self.plainRanges, Self.secondHalf) == reason + "0.m3u8:4 and 1.m3u8:5")
    }

    @Test("The same key by another relative name is the same key")
    func keyNames() throws {
        let source = try HlsSource(["f"])
        try source.write("1.m3u8", playlist(Self.key("keys/k", 1), "#EXTINF:1,", "f"))
        try source.write("sub/2.m3u8", playlist(Self.key("../keys/k", 1), "#EXTINF:1,", "../f"))
        try source.index.scan()
        #expect(try source.content("f") == ":keys/k 1")
        try source.write("sub/3.m3u8", playlist(Self.key("keys/k", 1), "#EXTINF:1,", "../f"))
        try source.index.scan()
        #expect(try source.content("f").hasPrefix("malformed"))
    }

    @Test("A playlist's text waits for keys if one of its files has encrypted byte ranges in any playlist")
    func needed() throws {
        let source = try HlsSource(["f"])
        try source.write("a.m3u8", Self.plainRanges)
        try source.write("b.m3u8", Self.frames)
        try source.index.scan()
        #expect(try source.content("b.m3u8").hasSuffix("malformed") == false)
        #expect(try source.index.open(Array("b.m3u8".utf8))?.needed.isEmpty == true)
        try source.run("rm a.m3u8")
        source.index.refresh(Array("a.m3u8".utf8))
        try source.write("c.m3u8", Self.halves)
        source.index.refresh(Array("c.m3u8".utf8))
        #expect(try source.content("b.m3u8").hasPrefix("playlist"))
        let content = try #require(try source.index.open(Array("b.m3u8".utf8)))
        #expect(content.needed.map(\.path) == [Array("f".utf8)])
        let segment = try #require(content.needed.first?.segment)
        #expect(segment.keys == [KeyName.uri(Array("k".utf8), directory: [])])
        #expect(ChainFormat.chains(of: segment, size: 64).map(\.ciphertext) == [0..<32, 32..<64])
        let rendered = try content.rendered { (number, range) in
            #expect(number == 0)
            return range.lowerBound + 100..<range.upperBound + 100
        }
        #expect(
            rendered
                == playlist(
                    "#EXT-X-I-FRAMES-ONLY", "#EXTINF:1,", "#EXT-X-BYTERANGE:5@107", "f", "#EXTINF:1,",
                    "#EXT-X-BYTERANGE:5@109",
                    "f"))
    }
}

/// Names of keys, compared by the keys they lead to.
@Suite struct KeyMeaningTests {
    private func content(_ keys: [String: String], _ uris: String...) throws -> String {
        let source = try HlsSource(["f"])
        for (name, text) in keys { try source.write(name, Array(text.utf8)) }
        for (number, uri) in uris.enumerated() {
            try source.write("\(number).m3u8", playlist(keyLine(uri), "#EXTINF:1,", "f"))
        }
        try source.index.scan()
        return try source.content("f")
    }

    @Test("Two URIs that lead to one file, or to the same bytes, do not contradict each other")
    func same() throws {
        let (one, other) = ("0123456789abcdef", "fedcba9876543210")
        #expect(try content(["k": one], "https://h/k?t=1", "https://h/k?t=2").hasSuffix(" 1"))
        #expect(try content(["k": one], "https://h/k", "https://i/k", "k").hasSuffix(" 1"))
        #expect(try content(["k": one, "copy": one], "k", "copy").hasSuffix(" 1"))
        #expect(try content(["k": one, "j": other], "k", "j").hasPrefix("malformed"))
        // A downloader may have kept the query, so the URI counts as written.
        #expect(try content(["k?t=1": one, "k?t=2": other], "k?t=1", "k?t=2").hasPrefix("malformed"))
        #expect(try content([:], "https://h/k?t=1", "https://h/k?t=2").hasPrefix("malformed"))
    }

    @Test("A key that comes later ends the contradiction at the next open")
    func later() throws {
        let source = try HlsSource(["f"])
        for (number, uri) in ["https://h/k?t=1", "https://h/k?t=2"].enumerated() {
            try source.write("\(number).m3u8", playlist(keyLine(uri), "#EXTINF:1,", "f"))
        }
        try source.index.scan()
        #expect(try source.content("f").hasPrefix("malformed"))
        try source.write("k", Array("0123456789abcdef".utf8))
        for number in 0...1 { _ = try source.index.open(Array("\(number).m3u8".utf8)) }
        #expect(try source.content("f").hasSuffix(" 1"))
        #expect(source.index.left().isEmpty)
    }

    @Test("Another playlist that is read again, and has not changed, changes no size")
    func sizes() throws {
        let source = try HlsSource(["1.ts", "2.ts"])
        for number in 1...2 {
            try source.write("\(number).m3u8", playlist(keyLine("k"), "#EXTINF:1,", "\(number).ts"))
        }
        try source.index.scan()
        let texts = try (1...2).map { try source.rendered("\($0).m3u8") }
        for number in 1...2 {
            #expect(try source.content("\(number).m3u8") == "playlist \(texts[number - 1].utf8.count)")
        }
        // Let another playlist contradict the first one, whose next open must notice it.
        try source.write("3.m3u8", playlist(keyLine("j"), "#EXTINF:1,", "1.ts"))
        source.index.refresh(Array("3.m3u8".utf8))
        #expect(try source.content("1.m3u8") == "playlist \(texts[0].utf8.count)")
        #expect(try source.rendered("1.m3u8") == source.text("1.m3u8"))
    }
}

/// Files that begin like playlists, in unreadable forms.
@Suite struct PlaylistBeginningTests {
    private static let text = "#EXTM3U\n#EXT-X-KEY:METHOD=AES-128,URI=\"k\"\n#EXTINF:1,\n1.ts\n"

    private func left(_ name: String, _ bytes: [UInt8]) throws -> [String] {
        let source = try HlsSource(["1.ts"])
        try source.write(name, bytes)
        try source.write("other.m3u8", playlist())
        try source.index.scan()
        #expect(source.problems().isEmpty == source.index.left().isEmpty)
        return source.index.left().map { "\(String(decoding: $0.path, as: UTF8.self)): \($0.text)" }
    }

    @Test("They are named, and what is no playlist is not")
    func named() throws {
        let end = ": it and its files stay as they are"
        let wide = Self.text.utf16.flatMap { [UInt8(truncatingIfNeeded: $0), UInt8($0 >> 8)] }
        let utf16 = "a playlist in UTF-16: convert it to UTF-8\(end)"
        #expect(try left("a.m3u8", [0xFF, 0xFE] + wide) == ["a.m3u8: \(utf16)"])
        #expect(try left("a.txt", wide) == ["a.txt: \(utf16)"])
        #expect(try left("a.m3u", [0xFE, 0xFF, 0] + wide.dropLast()) == ["a.m3u: \(utf16)"])
        let gzip: [UInt8] = [0x1F, 0x8B, 8, 0, 0, 0, 0, 0]
        let compressed = "a playlist compressed with gzip: decompress it\(end)"
        #expect(try left("a.m3u8", gzip) == ["a.m3u8: \(compressed)"])
        #expect(try left("a.m3u8.gz", gzip) == ["a.m3u8.gz: \(compressed)"])
        #expect(try left("a.gz", gzip) == [])
        let blank = "a playlist whose first line is not #EXTM3U: remove what stands before it\(end)"
        #expect(try left("a.m3u8", Array("\r\n \n\(Self.text)".utf8)) == ["a.m3u8: \(blank)"])
        let renamed = "a playlist whose name does not end with .m3u8 or .m3u: rename it\(end)"
        #expect(try left("list", Array(Self.text.utf8)) == ["list: \(renamed)"])
        #expect(try left("a.m3u", Array("song.mp3\n".utf8)) == [])
        #expect(try left("a.txt", Array("text".utf8)) == [])
    }

    @Test("Attributes after the first tag are a playlist")
    func attributes() throws {
        #expect(try left("a.m3u8", Array("#EXTM3U x-tvg-url=\"a\"\(Self.text.dropFirst(7))".utf8)) == [])
        #expect(throws: PlaylistError.self) { try Playlist.parse(Array("#EXTM3UX\n".utf8)) }
    }
}
