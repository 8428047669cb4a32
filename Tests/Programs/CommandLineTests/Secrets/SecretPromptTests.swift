import Foundation
import TestSupport
import Testing

/// A secret that a person types: three tries, and a recovery key in place of the passphrase.
@Suite(.timeLimit(.minutes(20))) struct SecretPromptTests {
    private let place: SlotPlace
    private let right = "Passphrase: =\(SlotPlace.passphrase)"
    private let wrong = "Passphrase: =battery"

    init() throws { place = try SlotPlace() }

    private func addRecoveryKey() throws -> String {
        let made = try place.slot("add", place.opening + ["--new-recovery-key", "--json"]).succeeded()
        return try #require(place.fields(made)["recoveryKey"] as? String)
    }

    @Test("a person has three tries")
    func personHasThreeTries() throws {
        let refusal = "vaultfs: \(place.vault): wrong passphrase\n"
        let advice =
            refusal.dropLast() + "; if the passphrase is right, vaultfs.json was changed: try a copy of that file\n"
        for (answers, code, refusals) in [
            ([right], 0, 0), ([wrong, wrong, right], 0, 2), ([wrong, wrong, wrong], 4, 3),
        ] {
            let (shown, errors) = try place.terminal(["verify", place.vault], answers: answers)
            #expect(shown.hasSuffix("exit \(code)\n"), "\(shown)\(errors)")
            let last = refusals == 3 ? advice : ""
            #expect(errors == String(repeating: refusal, count: min(refusals, 2)) + last, "\(errors)")
        }
        // Not from a source, which would give the same again.
        try place.expectRefusal(4, "wrong passphrase") {
            try place.run(["verify", place.vault, "--passfile", place.file("new")])
        }
    }

    @Test("the third wrong passphrase mentions the recovery key, if there is one")
    func wrongPassphraseMentionsRecoveryKey() throws {
        _ = try addRecoveryKey()
        let (_, errors) = try place.terminal(["verify", place.vault], answers: [wrong, wrong, wrong])
        let end = "try a copy of that file; if the passphrase is lost, use --recovery-key\n"
        #expect(errors.hasSuffix(end), "\(errors)")
        try place.expectRefusal(4, "wrong passphrase\n") {
            try place.run(["verify", place.vault, "--passfile", place.file("new")])
        }
    }

    @Test("a recovery key that is typed as the passphrase is recognised")
    func recoveryKeyThatIsTyped() throws {
        let key = try addRecoveryKey()
        let (shown, errors) = try place.terminal(["verify", place.vault], answers: ["Passphrase: =\(key)"])
        #expect(shown.hasSuffix("exit 0\n"), "\(shown)\(errors)")
        #expect(errors == "vaultfs: a recovery key was typed: used as one\n")
        // With a wrong digit it is a passphrase, and a wrong one.
        let misspelt = (key.hasPrefix("0") ? "1" : "0") + key.dropFirst()
        let (_, refused) = try place.terminal(
            ["verify", place.vault], answers: ["Passphrase: =\(misspelt)", "Passphrase: =\(key.uppercased())"])
        #expect(refused.contains("wrong passphrase\nvaultfs: a recovery key was"))
        let (asked, again) = try place.terminal(
            ["verify", place.vault, "--recovery-key"],
            answers: ["Recovery key: =\(misspelt)", "Recovery key: =\(key)"])
        #expect(asked.hasSuffix("exit 0\n") && again.contains("the check digits disagree"), "\(asked)\(again)")
    }
}
