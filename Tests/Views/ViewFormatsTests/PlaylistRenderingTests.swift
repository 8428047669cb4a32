import Glibc
import Testing

@testable import ViewFormats

@Suite struct PlaylistRenderingTests {
    private static let key = "#EXT-X-KEY:METHOD=AES-128,URI=\"k\",IV=0x1"

    @Test(
        "Key lines are removed with their line ends; everything else is unchanged, byte for byte",
        arguments: [
            ("#EXTM3U\n\(key)\n#EXTINF:1,\na\n", "#EXTM3U\n#EXTINF:1,\na\n"),
            ("\u{FEFF}#EXTM3U\r\n\(key)\r\n\r\n#EXTINF:1,\r\na", "\u{FEFF}#EXTM3U\r\n\r\n#EXTINF:1,\r\na"),
            (
                "#EXTM3U \n#UNKNOWN:x  \n# c\n\(key)  \n#EXT-X-PART:URI=\"p\",BYTERANGE=\"1@2\"\n#EXTINF:1,\na \t\nb",
                "#EXTM3U \n#UNKNOWN:x  \n# c\n#EXT-X-PART:URI=\"p\",BYTERANGE=\"1@2\"\n#EXTINF:1,\na \t\nb"
            ),
            ("#EXTM3U\r\(key)\r#EXTINF:1,\ra\r", "#EXTM3U\r#EXTINF:1,\ra\r"),
            ("#EXTM3U\n#EXTINF:1,\na\n\(key)", "#EXTM3U\n#EXTINF:1,\na\n"),
            (
                "#EXTM3U\n#EXT-X-SESSION-KEY:METHOD=AES-128,URI=\"k\"\n#EXT-X-STREAM-INF:X=1\nv\n",
                "#EXTM3U\n#EXT-X-STREAM-INF:X=1\nv\n"
            ),
            (
                "#EXTM3U\n#EXT-X-KEYS:x\n#ext-x-key:METHOD=NONE\n\0\n",
                "#EXTM3U\n#EXT-X-KEYS:x\n#ext-x-key:METHOD=NONE\n\0\n"
            ),
        ])
    func removal(_ text: String, _ expected: String) throws {
        let rendered = try Playlist.parse(Array(text.utf8)).renderedWithoutKeys
        #expect(String(decoding: rendered, as: UTF8.self) == expected)
    }

    @Test("Byte ranges become the plaintext's, in their original form")
    func byteRanges() throws {
        let text = playlist(
            Self.key, "#EXT-X-MAP:X=\"1\",BYTERANGE=\"32@0\",URI=\"a\"", "#EXT-X-BYTERANGE:0048@32 ", Self.key,
            "#EXTINF:1,", "a",
            "#EXTINF:1,", "#EXT-X-BYTERANGE:16", "a", "#EXTINF:1,", "#EXT-X-BYTERANGE:5@0", "other")
        let plaintext: [Range<UInt64>] = [0..<20, 20..<60, 60..<61]
        let rendered = try #require(
            try Playlist.parse(text).rendered { (number, _) in
                ShownReference(bytes: number < plaintext.count ? plaintext[number] : nil)
            })
        let expected = playlist(
            "#EXT-X-MAP:X=\"1\",BYTERANGE=\"20@0\",URI=\"a\"", "#EXT-X-BYTERANGE:40@20 ", "#EXTINF:1,", "a",
            "#EXTINF:1,",
            "#EXT-X-BYTERANGE:1", "a", "#EXTINF:1,", "#EXT-X-BYTERANGE:5@0", "other")
        #expect(String(decoding: rendered, as: UTF8.self) == String(decoding: expected, as: UTF8.self))
    }

    /// Renders a playlist with every kind of change of keys. It leaves references whose URI begins with `L`.
    private func left(_ lines: String...) throws -> String {
        let parsed = try Playlist.parse(Array((["#EXTM3U"] + lines).map { $0 + "\n" }.joined().utf8))
        let rendered = parsed.rendered { (_, reference) in
            ShownReference(needsKeys: parsed.text[reference.uri].first == UInt8(ascii: "L"))
        }
        let text = String(decoding: try #require(rendered), as: UTF8.self)
        #expect(text.hasPrefix("#EXTM3U\n"))
        return String(text.dropFirst(8)).replacing("#EXT-X-KEY:METHOD=", with: "=").replacing("#EXTINF:1,\n", with: "")
            .replacing("\n", with: " ")
    }

    private static let one = "#EXT-X-KEY:METHOD=AES-128,URI=\"1\""
    private static let two = "#EXT-X-KEY:METHOD=AES-128,URI=\"2\""
    private static let foreign = "#EXT-X-KEY:METHOD=SAMPLE-AES,URI=\"3\",KEYFORMAT=\"f\""
    private static let none = "#EXT-X-KEY:METHOD=NONE"

    @Test("References that are left have their key lines, and the others none")
    func keyLinesOfLeft() throws {
        let (one, two, three) = ("=AES-128,URI=\"1\"", "=AES-128,URI=\"2\"", "=SAMPLE-AES,URI=\"3\",KEYFORMAT=\"f\"")
        func lines(_ uris: String) -> String {
            uris.split(separator: " ").map { "#EXTINF:1,\n\($0)" }.joined(separator: "\n")
        }
        // All are left, so the text stays the original.
        #expect(try left(Self.one, lines("L1 L2"), Self.none, lines("c")) == "\(one) L1 L2 =NONE c ")
        #expect(try left(Self.one, Self.foreign, lines("L1"), Self.two, lines("L2")) == "\(one) \(three) L1 \(two) L2 ")
        // All are decrypted.
        #expect(try left(Self.one, lines("a"), Self.none, lines("c"), Self.two, lines("b")) == "a c b ")
        // Some are left under one key.
        #expect(try left(Self.one, lines("a L1 b L2 c")) == "a \(one) L1 =NONE b \(one) L2 =NONE c ")
        // The key changes meanwhile.
        #expect(try left(Self.one, lines("L1"), Self.two, lines("b L2")) == "\(one) L1 =NONE b \(two) L2 ")
        #expect(try left(Self.one, lines("a"), Self.none, Self.two, lines("L2 c")) == "a =NONE \(two) L2 =NONE c ")
        // The next key does not replace this format.
        #expect(
            try left(Self.one, Self.foreign, lines("L1"), Self.none, Self.two, lines("b L2"))
                == "\(one) \(three) L1 =NONE b \(two) L2 ")
        // One key stays in force while another is replaced.
        #expect(
            try left(Self.one, Self.foreign, lines("a"), Self.two, lines("L1")) == "a \(three) \(two) L1 ")
        // Key lines without a reference after them stay only after a reference that needs keys.
        #expect(try left(Self.one, lines("a"), Self.two) == "a ")
        #expect(try left(Self.one, lines("L1"), Self.two) == "\(one) L1 \(two) ")
        // Parts and maps are references too. A decrypted one is under no key.
        #expect(
            try left(Self.one, "#EXT-X-MAP:URI=\"m\"", "#EXT-X-PART:URI=\"Lp\"", lines("a"))
                == "#EXT-X-MAP:URI=\"m\" \(one) #EXT-X-PART:URI=\"Lp\" =NONE a ")
        #expect(
            try left(Self.one, lines("L1"), Self.none, "#EXT-X-PART:URI=\"p\"", Self.two, lines("a"))
                == "\(one) L1 =NONE #EXT-X-PART:URI=\"p\" a ")
        // A line's two URIs stay together.
        #expect(
            try left(Self.one, lines("a"), "#EXT-X-FUTURE:URI=\"Lx\",X-URI=\"y\"", lines("b"))
                == "a \(one) #EXT-X-FUTURE:URI=\"Lx\",X-URI=\"y\" =NONE b ")
    }

    @Test("Keys announced by a master playlist stay with a playlist that is left")
    func sessionKeys() throws {
        let lines = ["#EXT-X-SESSION-KEY:METHOD=AES-128,URI=\"k\"", "#EXT-X-STREAM-INF:X=1"]
        #expect(try left(lines[0], lines[1], "Lv") == "\(lines[0]) \(lines[1]) Lv ")
        #expect(try left(lines[0], lines[1], "v") == "\(lines[1]) v ")
    }

    @Test("Key lines that would be repeated without end are refused, not written")
    func repeated() throws {
        let key = "#EXT-X-KEY:METHOD=AES-128,URI=\"\(String(repeating: "k", count: 100_000))\""
        let text = playlist(key, String(repeating: "#EXTINF:1,\na\n", count: 1000))
        let parsed = try Playlist.parse(text)
        #expect(parsed.rendered { (number, _) in ShownReference(needsKeys: number % 2 == 0) } == nil)
        #expect(parsed.rendered { (number, _) in ShownReference(needsKeys: number < 500) } != nil)
    }

    @Test("A plaintext offset is found within a chain, at its end and across padding")
    func rangeMap() throws {
        let encryption = CipherChain.Encryption(key: 0, vector: .bytes(.zero), padding: .pkcs7)
        let map = ChainMap(
            [
                (CipherChain(ciphertext: 0..<10, encryption: nil), 10),
                (CipherChain(ciphertext: 10..<42, encryption: encryption), 20),
                (CipherChain(ciphertext: 42..<58, encryption: encryption), 0),
                (CipherChain(ciphertext: 58..<90, encryption: encryption), 31),
            ])
        let cases: [(Range<UInt64>, Range<UInt64>)] = [
            (0..<10, 0..<10), (10..<42, 10..<30), (42..<58, 30..<30), (58..<90, 30..<61), (12..<20, 12..<20),
            (0..<90, 0..<61),
            (40..<42, 30..<30), (60..<74, 32..<46), (90..<90, 61..<61),
        ]
        for (ciphertext, plaintext) in cases { #expect(try map.plaintext(of: ciphertext) == plaintext) }
        #expect(throws: ViewError.self) { try map.plaintext(of: 58..<91) }
        #expect(throws: ViewError.self) { try ChainMap([]).plaintext(of: 0..<1) }
    }
}
