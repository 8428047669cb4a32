import ArgumentParser
import TestSupport
import Testing

@testable import vaultfs

/// Help as people read it, through the binary.
@Suite(.timeLimit(.minutes(20))) struct HelpTests {
    private static let limit = 60

    private static func help(_ words: [String]) throws -> [String] {
        try Command([Products.binary] + words).run().succeeded().output.split(
            separator: "\n", omittingEmptySubsequences: false
        ).dropLast().map(String.init)
    }

    /// Returns the words of every command, the program's own first.
    private static func commands(_ command: any ParsableCommand.Type, _ words: [String]) -> [[String]] {
        [words]
            + command.configuration.subcommands.flatMap { commands($0, words + [$0.configuration.commandName ?? ""]) }
    }

    @Test("no help is longer than a tall terminal, and its own options come first")
    func length() throws {
        let formats = ["cbc-chunks", "cbc", "openssl", "hls"].map { ["view", $0] }
        for words in Self.commands(VaultFS.self, []) + formats {
            let lines = try Self.help(words + ["--help"])
            #expect(lines.count <= Self.limit, "\(words): \(lines.count) lines")
            #expect(try Self.help(["help"] + words) == lines)
            // A section's title.
            let titles = lines.filter { $0.wholeMatch(of: /[A-Z ]+:/) != nil }
            let own = ["ARGUMENTS:", "OPTIONS:"].filter(titles.contains)
            #expect(Array(titles.prefix(own.count)) == own, "\(words): \(titles)")
        }
    }

    @Test("the exit codes come after the commands, also without an argument")
    func exitCodes() throws {
        for words in [[], ["--help"]] {
            let lines = try Self.help(words)
            let (commands, codes) = (
                try #require(lines.firstIndex(of: "SUBCOMMANDS:")), lines.firstIndex(of: "Exit codes:")
            )
            #expect(try #require(codes) > commands)
            #expect(lines.contains("  0  success") && lines.contains { $0.hasPrefix(" 128+n  ") })
        }
    }

    @Test("secrets are one line, and a page of their own")
    func secrets() throws {
        let mount = try Self.help(["mount", "--help"])
        #expect(mount.contains("Secrets: see 'vaultfs help secrets'."))
        #expect(!mount.contains { $0.contains("--passfile <file>") })
        let page = try Self.help(["help", "secrets"]).joined(separator: "\n")
        for option in ["--passfile", "--extpass", "--keyfile", "--recovery-key", "--slot", "--allow-costly"] {
            #expect(page.contains("  \(option)"), "\(option)")
        }
    }

    @Test("lock says what it does without a mountpoint")
    func lock() throws {
        let help = try Self.help(["lock", "--help"]).joined(separator: "\n")
        #expect(help.contains("The mountpoint. Without it: all your mounts.\n") && !help.contains("only one mount"))
    }

    @Test("a format's help has its options only")
    func formats() throws {
        let hls = try Self.help(["view", "hls", "--help"]).joined(separator: "\n")
        #expect(hls.contains("--key <uri=file>") && hls.contains("--key-command"))
        #expect(!hls.contains("--chunk-size") && !hls.contains("--iter") && !hls.contains("--cipher"))
        let openssl = try Self.help(["export", "--view", "openssl", "--help"]).joined(separator: "\n")
        #expect(openssl.contains("--iter, --pbkdf2-iterations <n>") && !openssl.contains("--key <uri=file>"))
        let view = try Self.help(["help", "view"])
        #expect(view.contains("Formats: see 'vaultfs view FORMAT --help'."))
        #expect(!view.contains { $0.contains("--chunk-size") })
    }

    @Test("every option of a format is in the table of formats")
    func table() {
        let help = ViewOptions.helpMessage().split(separator: "\n")
        let names = help.filter { $0.hasPrefix("  --") }.compactMap { line in
            line.split(separator: " ").first.map { String($0.filter { $0 != "," }) }
        }
        #expect(Set(names) == Set(ViewOptions.formats.keys))
    }
}
