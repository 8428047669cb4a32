import Testing

@testable import ViewFormats

/// The file named by a key's URI, and the shown part of the URI.
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
            ("file:enc.key", "enc.key"), ("FILE:a/enc.key", "enc.key"), ("file://storage/emulated/0/k", "k"),
            ("data:,x", nil), ("{$base}/k", "k"), ("https://{$host}/k?x", "k"), ("a/{$name}", nil),
        ] as [(String, String?)])
    func fileName(uri: String, name: String?) {
        #expect(HlsURI.fileName(of: [UInt8](uri.utf8)) == name.map { [UInt8]($0.utf8) })
    }

    @Test(
        "Where a URI says first, then its last component beside the playlist, as a downloader may have saved it",
        arguments: [
            ("a/b%20c.ts", ["d/a/b%20c.ts", "d/a/b c.ts", "d/b%20c.ts<b%20c.ts", "d/b c.ts<b c.ts"]),
            ("https://h/x/a.ts", ["d/a.ts<a.ts"]), ("//h/a.ts", ["d/a.ts<a.ts"]), ("/x/a.ts", ["d/a.ts<a.ts"]),
            ("file:///x/a.ts", ["d/a.ts<a.ts"]), ("file:x/a.ts", ["d/x/a.ts", "d/a.ts<a.ts"]),
            ("https://h/a.ts?t=1", ["d/a.ts?t=1<a.ts?t=1", "d/a.ts<a.ts"]),
            ("a.ts?t=1", ["d/a.ts?t=1", "d/a.ts"]), ("https://h/a.ts?t=/", ["d/a.ts<a.ts"]),
            ("{$base}/a.ts", ["d/a.ts<a.ts"]), ("https://h", []), ("data:,x", []),
            ("../d0/./b//../a.ts", ["d0/a.ts", "d/a.ts<a.ts"]), ("../../a.ts", ["d/../../a.ts", "d/a.ts<a.ts"]),
            ("", []), ("https://h/..", []),
        ])
    func candidates(_ uri: String, _ expected: [String]) {
        let found = HlsURI.candidates([UInt8](uri.utf8), directory: Array("d".utf8)).map { candidate in
            let name = candidate.name.map { "<" + String(decoding: $0, as: UTF8.self) } ?? ""
            return String(decoding: candidate.path, as: UTF8.self) + name
        }
        #expect(found == expected)
    }

    @Test("A reference to a name leads to that name, whatever is in it")
    func references() {
        for name in ["a.ts", "a b.ts", "a:b.ts", "#a.ts", " a ", "a\"b", "a,b", "a\nb", "a.ts?x=1", "100%.ts", "é"] {
            for isAttribute in [false, true] {
                let reference = HlsURI.reference(to: Array(name.utf8), isAttribute: isAttribute)
                let paths = HlsURI.paths(reference, directory: [])
                #expect(paths.contains(Array(name.utf8)), "\(name)")
                #expect(!reference.contains { $0 < 0x20 } && reference.first != UInt8(ascii: "#"))
                #expect(!isAttribute || !reference.contains { "\",".utf8.contains($0) })
            }
        }
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
