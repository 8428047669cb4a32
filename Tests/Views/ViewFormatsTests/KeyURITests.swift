import Testing

@testable import ViewFormats

/// The file that a key's URI names, and the part of the URI that is shown.
@Suite struct KeyURITests {
    @Test(
        "The last component of the path, decoded, or nothing",
        arguments: [
            ("key.bin", "key.bin"), ("keys/key.bin", "key.bin"), ("/keys/key.bin", "key.bin"), ("../key", "key"),
            ("https://host/a/key.bin", "key.bin"), ("https://host/a/key?id=1/2", "key"), ("https://host/k#x/y", "k"),
            ("//host/key", "key"), ("a%20b%c3%a9", "a b\u{e9}"), ("100%", "100%"), ("%4", "%4"), ("%zz", "%zz"),
            ("%2e%2e%2fk", nil), ("a/..", nil), ("a/.", nil), ("%2E%2e", nil), ("a%2fb", nil), ("a%00", nil),
            ("", nil), ("a/", nil), ("?a", nil), ("https://host", nil), ("https://host/", nil),
            ("https://host?x=/key", nil), ("skd://id", nil), ("//host", nil), ("file:///a/key", "key"),
            ("a//b://c", "c"), ("urn:x:y", "urn:x:y"), ("...", "..."),
        ] as [(String, String?)])
    func fileName(uri: String, name: String?) {
        #expect(HlsURI.fileName(of: [UInt8](uri.utf8)) == name.map { [UInt8]($0.utf8) })
    }

    @Test("Keys and tokens in URIs are not shown, and neither are terminal control sequences")
    func shown() {
        for (uri, shown) in [
            ("https://host/k?token=secret", "https://host/k?…"), ("data:text/plain;base64,c2VjcmV0", "data:…"),
            ("DATA:,x", "data:…"), ("a\u{1b}[2J\n", "a?[2J?"), ("data", "data"), ("database:x", "database:x"),
        ] {
            #expect(HlsURI.text([UInt8](uri.utf8)) == shown)
        }
        #expect(HlsURI.text([UInt8](repeating: 0x61, count: 1000)).utf8.count < 300)
        #expect(HlsURI.text([0xFF, 0x61]) == "\u{FFFD}a")
    }
}
