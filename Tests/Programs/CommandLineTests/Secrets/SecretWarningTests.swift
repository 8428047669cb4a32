import Foundation
import SystemPackage
import TestSupport
import Testing

@testable import vaultfs

/// Working secrets that protect less than their owner may believe.
@Suite(.timeLimit(.minutes(60))) struct SecretWarningTests {
    private let place: SlotPlace
    private let cheap = ["--scrypt-logn", "10"]

    init() throws { place = try SlotPlace() }

    @Test(
        "a new passphrase that is short",
        arguments: [("1234567", true), ("12345678", false), ("größ\u{1F511}ße", true), ("größ\u{1F511}ßen", false)])
    func newPassphraseThatIsShort(passphrase: String, isShort: Bool) throws {
        let warning =
            isShort ? "vaultfs: warning: the passphrase has fewer than 8 characters, and is easy to guess\n" : ""
        let made = ["init", place.file("made"), "--passfile", "/dev/fd/0", "--no-recovery-key"]
        #expect(try place.run(made + cheap, input: passphrase).succeeded().errors == warning)
        let new = place.opening + ["--new-passfile", "/dev/fd/0"] + cheap
        #expect(try place.slot("add", new, input: passphrase).succeeded().errors == warning)
        let (old, first) = ("\(SlotPlace.question)\(SlotPlace.passphrase)", "New passphrase: =\(passphrase)")
        let answers = [old, first, "The same again: =\(passphrase)"]
        #expect(try place.terminal("change", cheap + ["2"], answers: answers).errors == warning)
    }

    @Test("a new secret that another slot has")
    func newSecretThatAnotherSlotHas() throws {
        func warning(_ slots: String) -> String {
            "vaultfs: warning: the new secret opens \(slots) too: to withdraw it, change or remove each of these slots\n"
        }
        let same = ["--new-passfile", place.file("passfile")] + cheap
        #expect(try place.slot("add", place.opening + same).succeeded().errors == warning("slot 1"))
        #expect(try place.slot("add", place.opening + same).succeeded().errors == warning("slots 1, 2"))
        #expect(try place.slot("change", place.opening + ["3"] + same).succeeded().errors == warning("slots 1, 2"))
        let keyfile = ["--new-keyfile", place.file("keyfile")]
        #expect(try place.slot("change", place.opening + ["3"] + keyfile).succeeded().errors.isEmpty)
        #expect(try place.slot("change", ["--keyfile", place.file("keyfile")] + keyfile).succeeded().errors.isEmpty)
        #expect(try place.slot("add", place.opening + keyfile).succeeded().errors == warning("slot 3"))
    }

    @Test("a mode that chmod cannot change", arguments: [(false, "chmod 600 /k"), (true, "mount that with")])
    func modeAdvice(isModeless: Bool, advice: String) {
        #expect(SecretWarning.modeAdvice("/k", isModeless: isModeless).contains(advice))
    }

    @Test("a file that every user can read")
    func fileThatEveryUserCan() throws {
        let (passfile, keyfile) = (place.file("passfile"), place.file("keyfile"))
        for path in [passfile, keyfile] { chmod(path, 0o644) }
        func warning(_ path: String) -> String {
            "vaultfs: warning: every user can read \(path): chmod 600 \(path)\n"
        }
        let add = try place.slot("add", place.opening + ["--new-keyfile", keyfile]).succeeded()
        #expect(add.errors == warning(keyfile) + warning(passfile))
        #expect(try place.slot("list", ["--keyfile", keyfile]).succeeded().errors == warning(keyfile))
        let view = ["export", "--view", "cbc-chunks", place.file("new"), place.file("out"), "--key-file", keyfile]
        #expect(try place.run(view).errors.hasPrefix(warning(keyfile)))
        for path in [passfile, keyfile] { chmod(path, 0o640) }
        #expect(try place.slot("list", ["--keyfile", keyfile]).succeeded().errors.isEmpty)
        #expect(try place.slot("list", place.opening).succeeded().errors.isEmpty)
    }

    @Test(
        "a line break in a passphrase",
        arguments: [
            ("correct horse\r\n", true), ("correct horse\n\n", true), ("correct\nhorse", true),
            ("correct horse\n", false),
        ])
    func lineBreakPassphrase(text: String, warns: Bool) throws {
        for (option, input) in [("--passfile=/dev/fd/0", text), ("--passfile=-", text), ("--extpass=cat", text)] {
            let result = try place.slot("list", [option], input: input)
            let name = option.prefix { $0 != "=" }
            let warning = "vaultfs: warning: the passphrase from \(name) has a line break or a CR in it, which counts"
            #expect(result.exitCode == (warns ? 4 : 0) && result.errors.hasPrefix(warns ? warning : ""), "\(result)")
            #expect(warns || result.errors.isEmpty, "\(result)")
        }
    }

    @Test("standard input")
    func standardInputIsNoFile() throws {
        let opened = try place.slot("list", ["--passfile", "-"], input: SlotPlace.passphrase + "\n")
        #expect(try opened.succeeded().errors.isEmpty)
        let new = place.opening + ["--new-passfile", "-"] + cheap
        try place.slot("add", new, input: "battery staple\n").succeeded()
        #expect(try place.opens(["--passfile", place.file("new")]))
        for both in [["--passfile", "-"], ["--passfile", "/dev/fd/0"]] {
            try place.expectRefusal(2, "\(both[0]) and --new-passfile must not be the same input") {
                try place.slot("add", both + ["--new-passfile", "-"], input: "x")
            }
        }
        try place.expectRefusal(4, "standard input is empty") {
            try place.slot("list", ["--passfile", "-"], input: "")
        }
        let (shown, errors) = try place.terminal("list", ["--passfile", "-"], answers: [])
        #expect(shown.hasSuffix("exit 2\n") && errors.contains("standard input is a terminal"), "\(shown)\(errors)")
    }

    @Test("a new file is looked at before a secret is asked for")
    func newFileIsLooked() throws {
        try place.directory.write("short", "k", mode: 0o600)
        for (option, path, code, words) in [
            ("--new-keyfile", "short", 4, "too short: at least 32"), ("--new-keyfile", "absent", 1, "cannot open"),
            ("--new-passfile", "absent", 1, "cannot open"),
        ] as [(String, String, Int32, String)] {
            for action in ["add", "change"] {
                // Without a terminal, a question would fail.
                try place.expectRefusal(code, words) {
                    let command = ["slot", action, place.vault, option, place.file(path)]
                    return try place.run(command, launcher: ["setsid", "--wait"])
                }
            }
        }
    }
}
