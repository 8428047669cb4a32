import ArgumentParser
import TestSupport
import Testing

@testable import vaultfs

/// Help as people read it, through the binary.
@Suite(.timeLimit(.minutes(60))) struct HelpTests {
    private static func help(_ words: [String]) throws -> String {
        try Command([Products.binary] + words).run().succeeded().output
    }

    @Test("the commands and the exit codes, also without an argument")
    func exitCodes() throws {
        let help = try Self.help([])
        #expect(help.contains("\nSUBCOMMANDS:\n") && help.contains("\n 128+n  "))
        for words in [["--help"], ["help"]] { #expect(try Self.help(words) == help) }
    }

    @Test("every option of a format is in the table of formats")
    func table() {
        let help = ViewOptions.helpMessage().split(separator: "\n")
        let names = help.filter { $0.hasPrefix("  --") }.compactMap { line in
            line.split(separator: " ").first.map { String($0.filter { $0 != "," }) }
        }
        #expect(Set(names) == Set(ViewOptions.rows.map(\.name)))
    }
}
