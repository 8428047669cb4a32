import LinuxSystem
import SystemPackage
import Testing

@testable import vaultfs

@Suite struct ExportTextTests {
    @Test(
        "paths as a shell reads them",
        arguments: [
            ("/a/b.ts", "/a/b.ts"), ("a b", "'a b'"), ("it's", "'it'\\''s'"), ("-x", "./-x"), ("größe", "'größe'"),
        ]
    )
    func pathsAsShellReadsThem(path: String, quoted: String) {
        #expect(FilePath(path).quotedForShell == quoted)
    }

    @Test("times", arguments: [(0, "0:00"), (9, "0:09"), (125, "2:05"), (3600, "1:00:00"), (7265, "2:01:05")])
    func timesOfPlaylists(seconds: Int, text: String) {
        #expect(AmountText.time(seconds: seconds) == text)
    }
}
