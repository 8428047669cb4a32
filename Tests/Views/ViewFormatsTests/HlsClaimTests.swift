import Testing

@testable import ViewFormats

/// Several playlists that name the same file, `f`, of 64 bytes.
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
        let source = try HlsSource()
        try source.write("f", [UInt8](repeating: 0, count: 64))
        for (number, text) in texts.enumerated() { try source.write("\(number).m3u8", text) }
        try source.index.scan()
        let content = try source.content("f")
        // Only a conflict is a problem.
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
        let source = try HlsSource()
        try source.write("f", [UInt8](repeating: 0, count: 64))
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
        let source = try HlsSource()
        try source.write("f", [UInt8](repeating: 0, count: 64))
        try source.write("a.m3u8", Self.plainRanges)
        try source.write("b.m3u8", Self.frames)
        try source.index.scan()
        #expect(try source.content("b.m3u8").hasSuffix("malformed") == false)
        #expect(try source.index.open(Array("b.m3u8".utf8))?.needed.isEmpty == true)
        try source.run("rm a.m3u8")
        source.index.refresh(Array("a.m3u8".utf8))
        try source.write("c.m3u8", Self.halves)
        source.index.refresh(Array("c.m3u8".utf8))
        #expect(try source.content("b.m3u8") == "playlist ?")
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
