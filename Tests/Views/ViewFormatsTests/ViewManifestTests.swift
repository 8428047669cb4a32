import Glibc
import TestSupport
import Testing

@testable import ViewFormats

/// view.json: its valid content, and the entry for each file.
@Suite(.timeLimit(.minutes(60))) struct ViewManifestTests {
    private func parse(_ text: String) throws(ViewError) -> ViewManifest {
        try ViewManifest.parse([UInt8](text.utf8))
    }

    private func files(_ members: String) throws(ViewError) -> ViewManifest {
        try parse(#"{"format": "cbc", "files": {\#(members)}}"#)
    }

    private func key(_ manifest: ViewManifest, _ path: String) throws -> String? {
        try manifest.entry(for: [UInt8](path.utf8))?.key.map { String(decoding: $0, as: UTF8.self) }
    }

    @Test("All fields of an entry", arguments: ViewFormatName.allCases)
    func whole(format: ViewFormatName) throws {
        let manifest = try parse(
            """
            {"format": "\(format.rawValue)", "files": {"a/b": {"key": "k/1", "iv": "0x000102030405060708090A0b0c0d0e0f",
             "cipher": "aes-192-cbc", "chunkSize": 16777216}, "*": {}}}
            """)
        #expect(manifest.format == format)
        let vector = InitialVector(high: 0x0001_0203_0405_0607, low: 0x0809_0A0B_0C0D_0E0F)
        #expect(
            try manifest.entry(for: [UInt8]("a/b".utf8))
                == .init(key: [UInt8]("k/1".utf8), vector: vector, cipher: .aes192CBC, chunkSize: 16_777_216))
        #expect(try manifest.entry(for: [UInt8]("c".utf8)) == .init())
        #expect(try manifest.entry(for: [UInt8]("a/c".utf8)) == nil)
    }

    @Test("The manual's example")
    func manual() throws {
        let manifest = try parse(Products.manualBlock("Views", with: #""files""#))
        #expect(try key(manifest, "2024/5/film.mp4") == "keys/2024.key")
        #expect(try key(manifest, "old/disk.img") == "/media/stick/disk.key")
        #expect(try manifest.entry(for: [UInt8]("old/film.mp4".utf8)) == nil)
    }

    @Test("The exact path first, then the longest pattern")
    func order() throws {
        let manifest = try files(
            #"""
            "a/x.ts": {"key": "path"}, "a/*": {"key": "short"}, "a/*.ts": {"key": "long"}, "**": {"key": "all"},
            "b[1].ts": {"key": "itself"}
            """#)
        #expect(try key(manifest, "a/x.ts") == "path")
        #expect(try key(manifest, "a/y.ts") == "long")
        #expect(try key(manifest, "a/y") == "short")
        #expect(try key(manifest, "z") == "all")
        #expect(try key(manifest, "b[1].ts") == "itself")
        #expect(try key(manifest, "b1.ts") == "itself")
    }

    @Test("Two patterns of one length that match are an error if they differ, but not if they agree")
    func tie() throws {
        let manifest = try files(#""a*": {"key": "1"}, "*b": {"key": "2"}, "c*": {"key": "3"}, "*d": {"key": "3"}"#)
        #expect(try key(manifest, "ax") == "1")
        #expect(try key(manifest, "xb") == "2")
        #expect(try key(manifest, "cd") == "3")
        #expect(
            malformed(try manifest.entry(for: [UInt8]("ab".utf8)))?
                .hasSuffix("both match 'ab' and differ: make one of them longer, or name the file") == true)
    }

    @Test(
        "The error names the fault in a manifest",
        arguments: [
            ("", "byte 0: ends too early"), ("[]", "not an object"), ("{}", "no format"),
            (#"{"format": 1, "files": {}}"#, "format is not a string"),
            (#"{"format": "zip", "files": {}}"#, "format 'zip' is none of cbc-chunks, cbc, openssl, hls, mp4"),
            (#"{"format": "cbc"}"#, "no files"), (#"{"format": "cbc", "files": []}"#, "files is not an object"),
            (#"{"format": "cbc", "files": {}, "keys": 1}"#, "unknown key 'keys'"),
            (#"{"format": "cbc", "format": "cbc", "files": {}}"#, "byte 18: duplicate member 'format'"),
            (#"{"format": "cbc", "files": {"a": {}, "a": {}}}"#, "byte 37: duplicate member 'a'"),
            (#"{"format": "cbc", "files": {"a": 1}}"#, "files: 'a': not an object"),
            (#"{"format": "cbc", "files": {"a": {"Key": ""}}}"#, "files: 'a': unknown key 'Key'"),
        ])
    func wrong(text: String, reason: String) {
        #expect(malformed(try parse(text)) == "view.json: \(reason)")
    }

    @Test(
        "The error names the fault in an entry",
        arguments: [
            (#""key": 1"#, "key is not a string"), (#""key": null"#, "key is not a string"),
            (#""key": "../k""#, "key '../k' leads out of the source or to nothing"),
            (#""key": """#, "key '' leads out of the source or to nothing"),
            (#""key": "/a\u0000""#, "key '/a?' leads out of the source or to nothing"),
            (#""iv": "00""#, "iv '00' is not 32 hexadecimal digits"),
            (
                #""iv": "0x0001020304050607080g0a0b0c0d0e0f""#,
                "iv '0x0001020304050607080g0a0b0c0d0e0f' is not 32 hexadecimal digits"
            ),
            (#""cipher": "AES""#, "cipher 'AES' is none of aes-128-cbc, aes-192-cbc, aes-256-cbc"),
            (#""chunkSize": 0"#, "chunkSize 0 is not in 16…1099511627776"),
            (#""chunkSize": "1""#, "chunkSize is not an integer"),
        ])
    func wrongEntry(members: String, reason: String) {
        #expect(malformed(try files(#""d/a": {\#(members)}"#)) == "view.json: files: 'd/a': \(reason)")
    }

    @Test("Entries that can match nothing are refused", arguments: ["", "/a", "a/", "a//b", "./a", "../a", "a/../b"])
    func useless(path: String) {
        #expect(
            malformed(try files("\"\(path)\": {}"))
                == "view.json: files: '\(path)' is not a relative path without '.', '..' and empty components")
    }

    @Test("Its size and its patterns are bounded")
    func bounds() throws {
        let large = [UInt8](repeating: 0x20, count: ViewManifest.maximumSize + 1)
        #expect(malformed(try ViewManifest.parse(large)) == "view.json: 16777217 bytes are more than 16777216")
        let patterns = (0...ViewManifest.maximumPatternCount).map { "\"\($0)*\": {}" }
        #expect(malformed(try files(patterns.joined(separator: ","))) == "view.json: 1001 patterns are more than 1000")
        #expect(malformed(try files(String(repeating: "[", count: 100))) != nil)
    }

    @Test("100,000 files with an entry each are found quickly")
    func many() throws {
        let manifest = try files((0..<100_000).map { "\"\($0)\":{\"key\":\"k\($0)\"}" }.joined(separator: ","))
        let start = ContinuousClock.now
        let numbers = stride(from: 0, to: 100_000, by: 10)
        #expect(try numbers.allSatisfy { try key(manifest, "\($0)") == "k\($0)" })
        // Each takes microseconds. A search through all entries would take minutes.
        #expect(ContinuousClock.now - start < .seconds(10))
    }

    @Test("It is read from the source's root, if it exists and is a file")
    func read() throws {
        let place = try KeyPlace()
        #expect(try ViewManifest.read(in: place.root) == nil)
        try place.write("view.json", [UInt8](#"{"format": "hls", "files": {}}"#.utf8))
        #expect(try ViewManifest.read(in: place.root)?.format == .hls)
        try place.write("view.json", [0x7B])
        #expect(malformed(try ViewManifest.read(in: place.root)) != nil)
        #expect(truncate("\(place.path)/view.json", 1 << 40) == 0)
        #expect(
            malformed(try ViewManifest.read(in: place.root)) == "view.json: 1099511627776 bytes are more than 16777216")
        unlink("\(place.path)/view.json")
        try place.makeFifo("view.json")
        #expect(malformed(try ViewManifest.read(in: place.root)) == "view.json: it is not a regular file")
    }
}
