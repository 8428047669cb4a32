import TestSupport
import Testing

/// The names accepted by scripts/test.
@Suite struct TestNamesTests {
    private func packages(_ names: String...) throws -> CommandResult {
        try Command(["\(Products.root)/scripts/test", "--packages"] + names).run()
    }

    @Test(
        "a target, a file, a suite and a test; the packages of its target are named, each once",
        arguments: [
            "MountTests", "ViewOptionTests", "ViewOptions", "playlistAlone", "MountTests.MountTests/ViewOptions",
        ])
    func known(name: String) throws {
        let lines = try packages(name).succeeded().output.split(separator: "\n")
        #expect(lines.contains("sshfs") && lines.contains("libfuse3-dev"))
        #expect(Set(lines).count == lines.count)
    }

    @Test("any other name is refused")
    func unknown() throws {
        let result = try packages("RedoLogTests", "NoSuchTests")
        #expect(result.exitCode == 1 && result.errors.contains("the name NoSuchTests"), "\(result)")
    }
}
