import Control
import Foundation
import TestSupport
import Testing
import VaultCrypto
import VaultFormat

@testable import vaultfs

/// Unusable secrets and terminals that disappear: one line of error, an exit code, and the vault unchanged.
@Suite(.timeLimit(.minutes(20))) struct SlotSecretTests {
    private let place: SlotPlace

    init() throws { place = try SlotPlace() }

    @Test(
        "a client's secret that no slot can have is refused, and not quoted",
        arguments: [("pin", 9), ("passphrase", 0), ("keyfile", 31), ("recovery", 33)])
    func clientSecretsOfNoSlot(kind: String, count: Int) throws {
        let bytes = Array("secret-aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa".utf8.prefix(count))
        let given = ClientSecret(kind: kind, bytes: bytes.withUnsafeBytes { SecretBytes(copying: $0) })
        let error = try #require(throws: FormatError.self) { _ = try SlotSecret(given) }
        #expect(!error.reason.contains("secret-") && !error.reason.isEmpty)
    }

    @Test("secrets that open nothing, or cannot be read")
    func secretsThatOpenNothing() throws {
        for (options, exitCode, words) in [
            (["--passfile", place.file("new")], 4, "wrong passphrase"),
            (["--keyfile", place.file("keyfile")], 4, "no keyfile slot"),
            (["--passfile", "/dev/null"], 4, "/dev/null is empty"),
            (["--passfile", "/dev/zero"], 4, "has over 65536 bytes, the limit for a passphrase or recovery key"),
            (["--passfile", "/nonexistent"], 1, "cannot open /nonexistent: No such file or directory"),
            (["--passfile", "/dev/fd/999"], 1, "cannot read file descriptor 999: Bad file descriptor"),
            (["--passfile", "/dev/fd/0"], 4, "standard input is empty"),
            (["--extpass", "exit 3"], 1, "the --extpass command"),
            (
                ["--recovery-key", "--passfile", place.file("new")], 4,
                "recovery key: not 9 groups of 8 hexadecimal digits"
            ),
        ] as [([String], Int32, String)] {
            try place.expectRefusal(exitCode, words) {
                try place.slot("add", options + ["--new-keyfile", place.file("keyfile")])
            }
        }
    }

    @Test("new secrets that are none, or cannot be read")
    func newSecretsThatAreNone() throws {
        try place.directory.write("line", "\n", mode: 0o600)
        try place.directory.write("short", String(repeating: "k", count: 31), mode: 0o600)
        for (options, exitCode, words) in [
            (["--new-passfile", place.file("line")], 4, "new secret: the passphrase is empty"),
            (["--new-passfile", "/dev/null"], 4, "/dev/null is empty"),
            (["--new-passfile", "/dev/zero"], 4, "/dev/zero has over 65536 bytes"),
            (["--new-passfile", "/nonexistent"], 1, "cannot open /nonexistent: No such file or directory"),
            (["--new-keyfile", place.file("short")], 4, "a keyfile of 31 bytes is too short: at least 32"),
            (["--new-keyfile", "/dev/zero"], 4, "/dev/zero has over 8388608 bytes, the limit for a keyfile"),
            (["--new-passfile", "/dev/fd/999"], 1, "cannot read file descriptor 999: Bad file descriptor"),
            (["--new-passfile", "/dev/fd/0"], 4, "standard input is empty"),
            (["--new-passfile", place.file("new"), "--new-recovery-key"], 2, "only one of"),
        ] as [([String], Int32, String)] {
            try place.expectRefusal(exitCode, words) { try place.slot("change", place.opening + options) }
        }
        try place.expectRefusal(2, "must not be the same") {
            try place.slot("add", ["--passfile", "-", "--new-passfile", "/dev/fd/0"], input: SlotPlace.passphrase)
        }
    }

    @Test("wrong usage")
    func wrongUsage() throws {
        let adding = place.opening + ["--new-keyfile", place.file("keyfile")]
        for (options, words) in [
            (["--expires", "2020-01-01T00:00:00Z"], "2020-01-01T00:00:00Z is not in the future"),
            (["--expires", "0"], "is not in the future"), (["--expires", "2027-02-30T00:00:00Z"], "2027-02-30"),
            (["--play-window", "0"], "--play-window"), (["--play-window", "1.5s"], "--play-window"),
            (["--play-window", "soon"], "--play-window 'soon' is not a time such as 90s"),
            (["--scrypt-logn", "9"], "vaultfs: --scrypt-logn 9 is not from 10 to 20\n"),
            (["--scrypt-logn", "21"], "vaultfs: --scrypt-logn 21 is not from 10 to 20\n"),
            (
                ["--expires", "400d"],
                "--expires '400d' is not a time such as 90s, 5m, 2h or 30d, at most 365d, nor one such as"
            ),
        ] {
            try place.expectRefusal(2, words) { try place.slot("add", adding + options) }
        }
        let long = adding + ["--label", String(repeating: "é", count: 50) + "x"]
        try place.expectRefusal(2, "x' is not UTF-8 of at most 100 bytes") { try place.slot("add", long) }
        try place.expectRefusal(2, "--label") {
            let script = "exec \"$@\" --label \"$(printf 'a\\377')\""
            return try place.run(["slot", "add", place.vault] + adding, launcher: ["sh", "-c", script, "sh"])
        }
        try place.expectRefusal(2, "only one of --new-keyfile, --keep-secret") {
            try place.slot("change", adding + ["--keep-secret"])
        }
    }

    @Test("a secret need not be UTF-8")
    func secretNeedNotBeUtf() throws {
        try Command(["sh", "-c", "printf 'a\\377\\200\\000b' >'\(place.file("bytes"))'"]).run().succeeded()
        let options = ["--new-passfile", place.file("bytes"), "--scrypt-logn", "10"]
        try place.slot("add", place.opening + options).succeeded()
        #expect(try place.opens(["--passfile", place.file("bytes")]))
    }

    @Test("without a terminal the options are named")
    func withoutTerminalOptionsAreNamed() throws {
        let command = ["slot", "add", place.vault]
        for (command, words) in [
            (command, "--passfile (- for standard input), "),
            (command + place.opening, "--new-passfile (- for standard input), "),
            (["rekey", place.vault, "--recovery-key", "--yes"], "--passfile (- for standard input), "),
            (["verify", place.vault, "--repair"], "--yes"), (["init", place.file("other")], "--passfile (- "),
            (["export", "--view", "openssl", place.file("new"), place.file("other")], "--passfile (- "),
        ] {
            try place.expectRefusal(2, "no terminal to ask on: use \(words)") {
                try place.run(command, launcher: ["setsid", "--wait"])
            }
        }
    }

    @Test("on a terminal the new passphrase is asked for twice, and not shown")
    func onTerminalNewPassphrase() throws {
        let (old, new) = ("\(SlotPlace.question)\(SlotPlace.passphrase)", "New passphrase: =battery staple")
        let again = "The same again: =battery staple"
        let (shown, errors) = try place.terminal("add", ["--scrypt-logn", "10"], answers: [old, new, again])
        #expect(shown.hasSuffix("echo on\nexit 0\n") && errors.isEmpty, "\(shown)\(errors)")
        #expect(!shown.contains("battery") && !shown.contains("horse"))
        #expect(try place.opens(["--passfile", place.file("new")]))
        let before = try place.configuration
        for (answers, ending, words) in [
            (thrice("\(SlotPlace.question)wrong"), "exit 4", "wrong passphrase"),
            (thrice("\(SlotPlace.question)^D"), "exit 4", "the passphrase is empty"),
            ([old, "New passphrase: ="], "exit 4", "the passphrase is empty"),
            ([old, "New passphrase: =^D"], "exit 4", "the passphrase is empty"),
            ([old, new, "The same again: =other"], "exit 1", "the two passphrases differ; nothing was done"),
            ([old, new, "The same again: =^C"], "exit 130", ""), ([old, "New passphrase: =^C"], "exit 130", ""),
            (["\(SlotPlace.question)gone"], "exit 1", "the terminal has hung up: Input/output error"),
            ([old, "New passphrase: =gone"], "exit 1", "the terminal has hung up: Input/output error"),
        ] {
            let (shown, errors) = try place.terminal("change", [], answers: answers)
            #expect(shown.hasSuffix("\(ending)\n") && !shown.contains("echo off"), "\(answers): \(shown)")
            // The last of three has advice.
            #expect(
                (words.isEmpty ? errors.isEmpty : errors.contains(words))
                    && Set(errors.split(separator: "\n")).count <= 2,
                "\(answers): \(errors)")
        }
        #expect(try place.configuration == before)
    }

    @Test("nothing secret on a command line, in the environment or in the vault")
    func nothingSecretOnCommandLine() throws {
        let seen = place.file("seen")
        let look = "cat /proc/$PPID/cmdline /proc/$PPID/environ >'\(seen)' 2>/dev/null; cat '\(place.file("passfile"))'"
        let new = ["--new-passfile", place.file("new"), "--scrypt-logn", "10"]
        try place.slot("add", ["--extpass", look] + new).succeeded()
        let looked = try Data(contentsOf: URL(fileURLWithPath: seen))
        #expect(looked.range(of: Data("--extpass".utf8)) != nil)
        for data in [looked, try place.configuration] {
            for secret in [SlotPlace.passphrase, "battery staple"] { #expect(data.range(of: Data(secret.utf8)) == nil) }
        }
    }
}
