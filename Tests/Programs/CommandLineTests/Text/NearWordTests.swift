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
}
