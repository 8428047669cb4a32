import TestSupport
import Testing

@testable import vaultfs

/// Guesses at misspelt commands and options.
@Suite struct NearWordTests {
    @Test(
        "a word is near if at most two letters differ, and less than half of them",
        arguments: [
            ("mout", "mount", true), ("mnuot", "mount", true), ("umont", "mount", true), ("lsit", "list", true),
            ("--al", "--all", true), ("--passfle", "--passfile", true), ("unmuont", "unmount", true),
            ("info", "init", false), ("ad", "add", true), ("xy", "all", false), ("--owner", "--force", false),
            ("--passphrase", "--passfile", false), ("", "all", false), ("eventually", "events", false),
        ])
    func near(word: String, known: String, isNear: Bool) {
        #expect(NearWord.isNear(word, known) == isNear)
        #expect(NearWord.guess(for: word, among: ["something else", known]) == (isNear ? known : nil))
    }

    @Test(
        "only a near word is suggested",
        arguments: [
            (["mout"], "unknown command 'mout'; did you mean 'vaultfs mount'?"),
            (["unmuont"], "unknown command 'unmuont'; did you mean 'vaultfs unmount'?"),
            (["slot", "ad"], "unknown command 'ad'; did you mean 'vaultfs slot add'?"),
            (["slot", "show"], "unknown command 'show'; there are list, add, remove, change"),
            (["lock", "--forgot"], "unknown option '--forgot'; did you mean '--forget'?"),
            (["lock", "--josn"], "unknown option '--josn'; did you mean '--json'?"),
            (["mount", "--help-me"], "unknown option '--help-me'"), (["slot", "add", "--x"], "unknown option '--x'"),
            (["mount", "v", "--forground"], "unknown option '--forground'; did you mean '--foreground'?"),
            (["lock", "--ask"], "unknown option '--ask'"), (["lock", "--fork"], "unknown option '--fork'"),
        ])
    func suggestion(arguments: [String], message: String) throws {
        let result = try Command([Products.binary] + arguments).run()
        #expect(result.exitCode == FailureCode.usage.rawValue)
        #expect(result.errors == "vaultfs: \(message)\n", "\(result)")
    }
}
