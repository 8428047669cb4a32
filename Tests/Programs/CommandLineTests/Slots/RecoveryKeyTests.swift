import Foundation
import TestSupport
import Testing

/// A recovery key is not lost by accident. When one stops working, the command says so, and how to make a new one.
@Suite(.timeLimit(.minutes(20))) struct RecoveryKeyTests {
    private let place: SlotPlace
    private let key: String
    /// The options that open the vault with it.
    private let recovery: [String]
    private let cheap = ["--scrypt-logn", "10"]

    init() throws {
        place = try SlotPlace()
        let made = try place.slot("add", place.opening + ["--new-recovery-key", "--json"]).succeeded()
        key = try #require(place.fields(made)["recoveryKey"] as? String)
        recovery = ["--recovery-key", "--passfile", try place.directory.write("recovery", key, mode: 0o600)]
    }

    private func advice(slot: Int) -> String {
        "vaultfs: the recovery key of slot \(slot) no longer opens the vault; to make a new one: vaultfs slot add "
            + "\(place.vault) --new-recovery-key\n"
    }

    /// The recovery key that a command has printed.
    private func printed(_ output: String) throws -> String {
        String(try #require(output.firstMatch(of: /(?:[0-9a-f]{8}-){8}[0-9a-f]{8}/)).output)
    }

    private func opens(recoveryKey: String) throws -> Bool {
        try place.opens(["--recovery-key", "--passfile", place.directory.write("other", recoveryKey, mode: 0o600)])
    }

    @Test("without an id it changes the only passphrase slot, and stays")
    func withoutIdItChangesOnly() throws {
        let new = ["--new-passfile", place.file("new")]
        let changed = try place.slot("change", recovery + new + cheap).succeeded()
        #expect(changed.output.hasPrefix("Changed slot 1: passphrase") && changed.errors.isEmpty, "\(changed)")
        #expect(try place.opens(["--passfile", place.file("new")]) && place.opens(recovery))
        #expect(try !place.opens(place.opening))
        // Its own slot, because it stays.
        try place.slot("change", recovery + ["--keep-secret", "--label", "safe"]).succeeded()
        #expect(try place.slots()[1]["label"] as? String == "safe" && place.opens(recovery))
    }

    @Test("with several passphrase slots, or none, it needs the id")
    func withSeveralPassphraseSlots() throws {
        try place.slot("add", recovery + ["--new-passfile", place.file("new")] + cheap).succeeded()
        let change = recovery + ["--new-keyfile", place.file("keyfile")]
        let slots = "the slots are 1 (passphrase), 2 (recovery), 3 (passphrase)"
        try place.expectRefusal(2, "give the id of the slot to change: the recovery key opens slot 2, \(slots)") {
            try place.slot("change", change)
        }
        for id in ["1", "3"] { try place.slot("change", change + [id]).succeeded() }
        try place.expectRefusal(2, "the slots are 1 (keyfile), 2 (recovery), 3 (keyfile)") {
            try place.slot("change", change)
        }
        #expect(try place.opens(recovery))
    }

    @Test("a change or a removal of its slot is reported")
    func changeOrRemoval() throws {
        let replaced = try place.slot("change", recovery + ["--new-recovery-key"]).succeeded()
        #expect(replaced.errors == "vaultfs: the old recovery key of slot 2 no longer opens the vault\n")
        let second = try printed(replaced.output)
        #expect(try opens(recoveryKey: second) && !place.opens(recovery))
        let changed = try place.slot(
            "change", place.opening + ["2", "--new-keyfile", place.file("keyfile")]
        ).succeeded()
        #expect(changed.errors == advice(slot: 2))
        #expect(try !opens(recoveryKey: second))
        try place.slot("add", place.opening + ["--new-recovery-key"]).succeeded()
        #expect(try place.slot("remove", place.opening + ["2"]).succeeded().errors.isEmpty)
        #expect(try place.slot("remove", place.opening + ["3"]).succeeded().errors == advice(slot: 3))
    }

    @Test("rekey offers a new one")
    func rekeyOffersNew() throws {
        let answers = ["\(SlotPlace.question)\(SlotPlace.passphrase)", "Rekey, without this slot? [y/N] =y"]
        let question = "Make a new recovery key? [y/N] ="
        var (shown, errors) = try place.terminal(["rekey", place.vault], answers: answers + [question + "y"])
        #expect(shown.hasSuffix("exit 0\n"), "\(shown)\(errors)")
        #expect(errors.contains("the old recovery key of slot 2 no longer opens the vault\n"), "\(errors)")
        let new = try printed(shown)
        #expect(try opens(recoveryKey: new) && place.opens(place.opening) && !place.opens(recovery))
        (shown, errors) = try place.terminal(["rekey", place.vault], answers: answers + [question + "n"])
        #expect(shown.hasSuffix("exit 0\n") && errors.hasSuffix(advice(slot: 2)), "\(shown)\(errors)")
        #expect(try !opens(recoveryKey: new) && place.slots().count == 1)
    }

    @Test("rekey makes a new one for a script")
    func rekeyMakesNew() throws {
        let rekey = ["rekey", place.vault, "--yes"] + place.opening
        try place.expectRefusal(2, "--new-recovery-key does not go with --json") {
            try place.run(rekey + ["--new-recovery-key", "--json"])
        }
        let first = try printed(place.run(rekey + ["--new-recovery-key"]).succeeded().output)
        #expect(try opens(recoveryKey: first) && !place.opens(recovery))
        #expect(try place.run(rekey).succeeded().errors.hasSuffix(advice(slot: 2)))
        #expect(try !opens(recoveryKey: first) && place.slots().count == 1)
    }
}
