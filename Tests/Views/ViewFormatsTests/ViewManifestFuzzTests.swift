import TestSupport
import Testing

@testable import ViewFormats

/// Manifests of any content, which must not trap.
@Suite(.timeLimit(.minutes(60))) struct ViewManifestFuzzTests {
    private static let original = [UInt8](
        #"""
        {"format": "cbc-chunks", "files": {"a/b.bin": {"key": "k", "iv": "000102030405060708090a0b0c0d0e0f",
        "cipher": "aes-256-cbc", "chunkSize": 16777216}, "**/*.b?[a-z]\\*": {"key": "/k\u00e9"}, "x": {}, "*/y": {}}}
        """#.utf8)
    private static let pieces = ["\"", "{", "}", ":", ",", "[", "\\", "*", "/", "..", "\\u0000", "\u{0}", "9", "null"]

    @Test("A manifest with bytes changed, cut out, repeated and inserted at random", arguments: 0..<8)
    func mutations(seed: UInt64) {
        var generator = SeededGenerator(seed: seed)
        var (taken, refused) = (0, 0)
        for _ in 0..<500 {
            var bytes = Self.original
            for _ in 0..<Int.random(in: 1...3, using: &generator) {
                let start = Int.random(in: 0..<bytes.count, using: &generator)
                let end = min(bytes.count, start + Int.random(in: 1...12, using: &generator))
                switch Int.random(in: 0..<4, using: &generator) {
                case 0: bytes[start] = UInt8.random(in: 0...255, using: &generator)
                case 1: bytes.removeSubrange(start..<end)
                case 2: bytes.insert(contentsOf: bytes[start..<end], at: start)
                default:
                    let piece = Self.pieces[Int.random(in: 0..<Self.pieces.count, using: &generator)]
                    bytes.insert(contentsOf: piece.utf8, at: start)
                }
            }
            do throws(ViewError) {
                let manifest = try ViewManifest.parse(bytes)
                for path in ["a/b.bin", "d/x.ba*", "q/y", ""] { _ = try manifest.entry(for: [UInt8](path.utf8)) }
                taken += 1
            } catch {
                refused += 1
            }
        }
        // Both outcomes must occur, or this test is void.
        #expect(taken > 0 && refused > 0)
    }

    @Test("Random bytes either are a key, a manifest, a URI or a pattern, or are refused", arguments: 0..<4)
    func random(seed: UInt64) {
        var generator = SeededGenerator(seed: seed)
        for _ in 0..<1000 {
            let size = Int.random(in: 0...80, using: &generator)
            let bytes = (0..<size).map { _ in UInt8.random(in: 0...255, using: &generator) }
            #expect(malformed(try ViewManifest.parse(bytes)) != nil)
            _ = HlsURI.fileName(of: bytes)
            _ = HlsURI.text(bytes)
            let text = bytes.filter { $0 != 0 }
            _ = PathPattern(text).matches(PathPattern.split(text))
            _ = try? KeyFile.parse(bytes, cipher: nil, name: "k")
        }
    }
}
