import Glibc
import LinuxSystem
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
        let rendered = try Playlist.parse(text).rendered { (number, _) -> Range<UInt64>? in
            number < plaintext.count ? plaintext[number] : nil
        }
        let expected = playlist(
            "#EXT-X-MAP:X=\"1\",BYTERANGE=\"20@0\",URI=\"a\"", "#EXT-X-BYTERANGE:40@20 ", "#EXTINF:1,", "a",
            "#EXTINF:1,",
            "#EXT-X-BYTERANGE:1", "a", "#EXTINF:1,", "#EXT-X-BYTERANGE:5@0", "other")
        #expect(String(decoding: rendered, as: UTF8.self) == String(decoding: expected, as: UTF8.self))
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
