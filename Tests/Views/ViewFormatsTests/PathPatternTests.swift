import Testing

@testable import ViewFormats

/// Globs over paths.
@Suite(.timeLimit(.minutes(60))) struct PathPatternTests {
    private func matches(_ pattern: String, _ path: String) -> Bool {
        PathPattern([UInt8](pattern.utf8)).matches(PathPattern.split([UInt8](path.utf8)))
    }

    @Test(
        "Patterns and the paths that they match",
        arguments: [
            ("*.mp4", ["a.mp4", ".mp4"], ["a.mp3", "d/a.mp4", "a.mp4/b"]),
            ("d/*", ["d/a", "d/.a"], ["d", "d/e/a", "e/a"]),
            ("?", ["a"], ["", "ab", "/"]),
            ("[a-c]?", ["ab", "cz"], ["da", "a"]),
            ("[!a]", ["b"], ["a"]),
            ("\\*", ["*"], ["a"]),
            ("a[/]b", [], ["a/b"]),
            ("**", ["a", "a/b", "a/b/c"], []),
            ("**/x", ["x", "a/x", "a/b/x"], ["xx", "a/x/b", "ax"]),
            ("a/**", ["a/b", "a/b/c"], ["a", "b/a", "ab/c"]),
            ("a/**/z", ["a/z", "a/b/z", "a/b/c/z", "a/z/z"], ["z", "a", "b/a/z", "a/zz"]),
            ("**/a/**/b/*.c", ["a/b/x.c", "x/a/b/a/y/b/x.c"], ["a/x.c", "b/a/x.c", "a/b/x/y.c"]),
            ("a**b", ["ab", "axb"], ["a/b"]),
        ] as [(String, [String], [String])])
    func table(pattern: String, yes: [String], no: [String]) {
        for path in yes { #expect(matches(pattern, path), "\(pattern) \(path)") }
        for path in no { #expect(!matches(pattern, path), "\(pattern) \(path)") }
    }

    @Test("No pattern takes long")
    func hostile() {
        let stars = String(repeating: "*a", count: 1000) + "*b"
        #expect(!matches(stars, String(repeating: "ab", count: 127) + "a"))
        #expect(!matches(String(repeating: "*?[a-z]", count: 500), String(repeating: "a", count: 255)))
        let deep = String(repeating: "a/", count: 2000)
        #expect(!matches(String(repeating: "**/a/", count: 800) + "b", deep + "c"))
        #expect(!matches(String(repeating: "**/*/", count: 800) + "b", deep + "c"))
    }
}
