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
}
