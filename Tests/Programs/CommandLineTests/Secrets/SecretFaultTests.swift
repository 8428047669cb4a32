import Foundation
import TestSupport
import Testing

/// Every source of a secret with every fault. Each must give one line of error and an exit code, without a part of the
/// secret, and leave the vault unchanged.
@Suite(.timeLimit(.minutes(60))) struct SecretFaultTests {
    /// Sources of the bytes to open the vault or its new slot.
    enum Source: String, CaseIterable, Sendable {
        case passfile, descriptor, command, credential, keyfile, provider, recovery
        case newPassfile, newDescriptor, newKeyfile

        var isNew: Bool { [.newPassfile, .newDescriptor, .newKeyfile].contains(self) }
        var isKeyfile: Bool { self == .keyfile || self == .newKeyfile }
        var isDescriptor: Bool { self == .descriptor || self == .newDescriptor }
        var isCommand: Bool { [.command, .provider].contains(self) }
    }

    private let place: SlotPlace

    init() throws { place = try SlotPlace() }

    /// Opens the vault from `source`, or adds a slot with that secret.
    /// - Parameter redirection: the shell's redirection for descriptor 0.
    private func run(_ source: Source, _ path: String, redirection: String? = nil) throws -> CommandResult {
        let options: [String] =
            switch source {
            case .passfile: ["--passfile", path]
            case .descriptor: ["--passfile", "/dev/fd/0"]
            case .command: ["--extpass", "cat '\(path)' 2>&-"]
            case .credential: ["--credential", (path as NSString).lastPathComponent]
            case .keyfile: ["--keyfile", path]
            case .provider: ["--provider", "cat '\(path)' 2>&-"]
            case .recovery: ["--recovery-key", "--passfile", path]
            case .newPassfile: ["--new-passfile", path]
            case .newDescriptor: ["--new-passfile", "/dev/fd/0"]
            case .newKeyfile: ["--new-keyfile", path]
            }
        let script = source.isDescriptor ? "exec \"$@\" \(redirection ?? "<'\(path)'")" : "exec \"$@\""
        let directory = (path as NSString).deletingLastPathComponent
        let command =
            source.isNew
            ? ["slot", "add", place.vault, "--scrypt-logn", "10"] + place.opening + options
            : ["slot", "add", place.vault, "--new-keyfile", place.file("keyfile")] + options
        return try place.run(
            command, launcher: ["env", "CREDENTIALS_DIRECTORY=\(directory)", "sh", "-c", script, "sh"])
    }

    private func expect(
        _ source: Source, _ exitCode: Int32, _ words: String, redirection: String? = nil, _ content: Data? = nil
    ) throws {
        let path = place.file("secret-\(source)")
        if let content {
            try content.write(to: URL(fileURLWithPath: path))
            chmod(path, 0o600)
        }
        try place.expectRefusal(exitCode, words) {
            let result = try run(source, path, redirection: redirection)
            if let content, content.count > 8 {
                let said = Data((result.output + result.errors).utf8)
                #expect(said.range(of: content.prefix(64)) == nil, "\(result)")
            }
            return result
        }
    }

    @Test("one that is wrong", arguments: Source.allCases)
    func oneThatIsWrong(source: Source) throws {
        switch source {
        case .keyfile:
            let added = ["--new-keyfile", place.file("keyfile")]
            try place.slot("add", place.opening + added).succeeded()
            try expect(source, 4, "wrong keyfile", Data("wrong keyfile of more than 32 bytes!".utf8))
        case .recovery:
            try place.slot("add", place.opening + ["--new-recovery-key"]).succeeded()
            let groups = Array(repeating: "00000000", count: 8) + ["66687aad"]
            try expect(source, 4, "wrong recovery key", Data(groups.joined(separator: "-").utf8))
            try expect(source, 4, "check digits disagree", Data((groups.dropLast() + ["66687aae"]).joined().utf8))
        case .provider:
            let text = Data("battery staple".utf8).base64EncodedString()
            let answer = "{\"secret\":{\"kind\":\"passphrase\",\"bytes\":\"\(text)\"}}"
            try expect(source, 4, "wrong passphrase", Data(answer.utf8))
            try expect(source, 1, "expected {\"secret\"", Data("battery staple".utf8))
        case .newPassfile, .newDescriptor, .newKeyfile: break
        default: try expect(source, 4, "wrong passphrase", Data("battery staple".utf8))
        }
    }

    @Test("one that is empty, or an empty line", arguments: Source.allCases)
    func oneThatIsEmpty(source: Source) throws {
        try expect(source, 4, "is empty", Data())
        let (exitCode, words): (Int32, String) =
            switch source {
            case .keyfile, .newKeyfile: (4, "a keyfile of 1 bytes is too short: at least 32")
            case .recovery: (4, "0 digits instead of 72")
            case .provider: (1, "the --provider command's answer")
            default: (4, "the passphrase is empty")
            }
        try expect(source, exitCode, words, Data("\n".utf8))
    }

    @Test("one that is too long", arguments: Source.allCases)
    func oneThatIsTooLong(source: Source) throws {
        let limit = source == .provider ? 16 << 20 : source.isKeyfile ? 8 << 20 : 64 << 10
        try expect(source, 4, "has over \(limit) bytes", Data(repeating: UInt8(ascii: "s"), count: limit + 1))
    }

    @Test("one that is not UTF-8", arguments: Source.allCases)
    func oneThatIsNotUtf(source: Source) throws {
        let bytes = Data([0xFF, 0x80, 0xC3, 0x28] + Array(repeating: 0xFE, count: 40))
        switch source {
        case .recovery: try expect(source, 4, "recovery key: not 9 groups of 8 hexadecimal digits", bytes)
        case .provider: try expect(source, 1, "the --provider command's answer", bytes)
        case .keyfile: try expect(source, 4, "no keyfile slot", bytes)
        case .newPassfile, .newDescriptor, .newKeyfile:
            let path = place.file("secret")
            try bytes.write(to: URL(fileURLWithPath: path))
            try run(source, path).succeeded()
            #expect(try place.opens([source == .newKeyfile ? "--keyfile" : "--passfile", path]))
        default: try expect(source, 4, "wrong passphrase", bytes)
        }
    }

    @Test("one that is not there, or cannot be read", arguments: Source.allCases)
    func oneNotThereCannot(source: Source) throws {
        let option = source == .provider ? "--provider" : "--extpass"
        if source.isDescriptor {
            try expect(source, 4, "standard input is empty", redirection: "<&-")
            try expect(source, 1, "cannot read standard input: Is a directory", redirection: "</")
            try expect(
                source, 1, "cannot read standard input: Bad file descriptor", redirection: "0>'\(place.file("x"))'")
        } else if source.isCommand {
            try expect(source, 1, "the \(option) command failed with exit code 1")
        } else {
            try expect(source, 1, "cannot open \(place.file("secret-\(source)")): No such file or directory")
            try Command(["mkdir", place.file("secret-\(source)")]).run().succeeded()
            try expect(source, 1, "cannot read \(place.file("secret-\(source)")): Is a directory")
        }
    }

    @Test(
        "a command that closes its output, is killed, or fails after it has spoken",
        arguments: [Source.command, .provider])
    func commandClosesOutputKilled(source: Source) throws {
        let option = source == .provider ? "--provider" : "--extpass"
        for (script, exitCode, words) in [
            ("exec >&-", 4, "the output of the \(option) command is empty"),
            ("kill -9 $$", 1, "the \(option) command was ended by signal 9"),
            ("echo 'battery staple'; exit 7", 1, "the \(option) command failed with exit code 7"),
            ("no-such-program 2>&-", 1, "the \(option) command failed with exit code 127"),
        ] as [(String, Int32, String)] {
            try place.expectRefusal(exitCode, words) {
                let result = try place.slot("add", ["--new-keyfile", place.file("keyfile"), option, script])
                #expect(!result.errors.contains("battery"))
                return result
            }
        }
    }

    @Test(
        "a descriptor that is not open, or is none",
        arguments: [
            ("/dev/fd/99", "cannot read file descriptor 99: Bad file descriptor"),
            ("/dev/fd/-1", "cannot open /dev/fd/-1: No such file or directory"),
            ("/dev/fd/x", "cannot open /dev/fd/x: No such file or directory"),
        ])
    func noDescriptor(path: String, words: String) throws {
        try place.expectRefusal(1, words) {
            try place.run(
                ["slot", "add", place.vault, "--new-keyfile", place.file("keyfile"), "--passfile", path],
                launcher: ["timeout", "20"])
        }
    }

    @Test("a pipe that does not block is waited for", arguments: ["--passfile", "--new-passfile"])
    func pipeDoesNotBlock(option: String) throws {
        let script = """
            import os, subprocess, sys, time
            reading, writing = os.pipe()
            os.set_blocking(reading, False)
            child = subprocess.Popen(sys.argv[1:] + [f"/dev/fd/{reading}"], pass_fds=[reading])
            time.sleep(0.2)
            os.write(writing, b"correct ")
            time.sleep(0.1)
            os.write(writing, b"horse")
            os.close(writing)
            sys.exit(child.wait())
            """
        let opening = option == "--passfile" ? ["--new-keyfile", place.file("keyfile")] : place.opening
        try place.run(
            ["slot", "add", place.vault, "--scrypt-logn", "10"] + opening + [option],
            launcher: [Products.python, "-c", script]
        ).succeeded()
    }

    @Test("credentials are not looked for at the root")
    func credentialsAreNotLooked() throws {
        for launcher in [["env", "CREDENTIALS_DIRECTORY="], ["env", "-u", "CREDENTIALS_DIRECTORY"]] {
            try place.expectRefusal(1, "CREDENTIALS_DIRECTORY is not set") {
                let command = ["slot", "add", place.vault, "--credential", "etc"]
                return try place.run(command + ["--new-keyfile", place.file("keyfile")], launcher: launcher)
            }
        }
    }

    @Test("on a terminal: wrong, not UTF-8, too long, and gone")
    func onTerminalWrong() throws {
        let before = try place.configuration
        let (old, long) = ("\(SlotPlace.question)\(SlotPlace.passphrase)", String(repeating: "s", count: 5000))
        for (options, answers, code, words) in [
            ([], thrice("\(SlotPlace.question)é\u{85}wrong"), 4, "wrong passphrase"),
            ([], thrice("\(SlotPlace.question)\(long)"), 4, "a terminal takes no more than 4094 bytes"),
            ([], [old, "New passphrase: =\(long)"], 4, "a terminal takes no more than 4094 bytes"),
            (
                ["--recovery-key"], thrice("Recovery key: =battery"), 4,
                "recovery key: not 9 groups of 8 hexadecimal digits"
            ),
            (["--recovery-key"], thrice("Recovery key: ="), 4, "0 digits instead of 72"),
            (["--recovery-key"], thrice("Recovery key: =^D"), 4, "0 digits instead of 72"),
            (["--recovery-key"], thrice("Recovery key: =\(long)"), 4, "a terminal takes no more than 4094 bytes"),
            (["--recovery-key"], ["Recovery key: =gone"], 1, "the terminal has hung up: Input/output error"),
            (["--recovery-key"], ["Recovery key: =^C"], 130, ""),
            ([], [old, "New passphrase: =battery staple", "The same again: =gone"], 1, "the terminal has hung up"),
        ] as [([String], [String], Int, String)] {
            let (shown, errors) = try place.terminal("add", options, answers: answers)
            #expect(shown.hasSuffix("exit \(code)\n") && !shown.contains("echo off"), "\(answers): \(shown)\(errors)")
            // There may be two lines, because the last of three tries gives advice.
            #expect(
                (words.isEmpty || errors.contains(words)) && Set(errors.split(separator: "\n")).count <= 2,
                "\(answers): \(errors)")
            for word in ["ssss", "battery", "horse"] { #expect(!(shown + errors).contains(word)) }
        }
        #expect(try place.configuration == before)
    }

    @Test("whatever command opens the vault", arguments: ["verify", "rekey", "export", "import", "mount"])
    func whateverCommandOpensVault(command: String) throws {
        let (source, other) = (place.file("source"), place.file("other"))
        try Command(["mkdir", source]).run().succeeded()
        let words: [String] =
            switch command {
            case "rekey": ["rekey", place.vault, "--yes"]
            case "import": ["import", source, place.vault]
            case "verify": ["verify", place.vault]
            case "mount": ["mount", place.vault, source]
            default: ["export", place.vault, other]
            }
        for (options, exitCode, said) in [
            (["--passfile", place.file("new")], 4, "wrong passphrase"), (["--passfile", "/dev/null"], 4, "is empty"),
            (["--passfile", "/dev/zero"], 4, "has over 65536 bytes"),
            (["--keyfile", place.file("keyfile")], 4, "no keyfile slot"),
            (["--passfile", "/dev/fd/0"], 4, "standard input is empty"),
            (["--extpass", "exit 3"], 1, "the --extpass command failed with exit code 3"),
            (["--provider", "exit 3"], 1, "the --provider command failed with exit code 3"),
            (
                ["--recovery-key", "--passfile", place.file("new")], 4,
                "recovery key: not 9 groups of 8 hexadecimal digits"
            ),
        ] as [([String], Int32, String)] {
            try place.expectRefusal(exitCode, said) { try place.run(words + options) }
            #expect(!FileManager.default.fileExists(atPath: other))
        }
    }

    @Test("a new vault: no secret, no vault")
    func newVault() throws {
        let other = place.file("other")
        for (options, exitCode, said) in [
            (["--passfile", "/dev/null"], 4, "is empty"), (["--passfile", "/dev/zero"], 4, "has over 65536 bytes"),
            (["--keyfile", place.file("passfile")], 4, "too short: at least 32"),
            (["--passfile", "/dev/fd/0"], 4, "standard input is empty"),
            (["--extpass", "exit 3"], 1, "the --extpass command failed with exit code 3"),
        ] as [([String], Int32, String)] {
            try place.expectRefusal(exitCode, said) { try place.run(["init", other] + options) }
            #expect(!FileManager.default.fileExists(atPath: other))
        }
        let (new, again) = ("New passphrase: =battery staple", "The same again: =")
        for (answers, code, said) in [
            ([new, again + "battery"], 1, "the two passphrases differ"), ([new, again + "^C"], 130, ""),
            ([new, again + "gone"], 1, "the terminal has hung up: Input/output error"),
            (["New passphrase: =^C"], 130, ""), (["New passphrase: =^D"], 4, "the passphrase is empty"),
            (["New passphrase: =gone"], 1, "the terminal has hung up: Input/output error"),
        ] {
            try expectEnd(["init", other], answers, code, said)
            #expect(!FileManager.default.fileExists(atPath: other))
        }
    }

    @Test("on a terminal: a rekey that nobody has allowed")
    func onTerminalRekey() throws {
        let before = try place.configuration
        for (answers, code, said) in [
            (thrice("\(SlotPlace.question)battery staple"), 4, "wrong passphrase"),
            (["\(SlotPlace.question)^C"], 130, ""),
            (["\(SlotPlace.question)gone"], 1, "the terminal has hung up: Input/output error"),
        ] { try expectEnd(["rekey", place.vault], answers, code, said) }
        #expect(try place.configuration == before)
    }

    /// - Parameter words: expected in the one line of errors. If empty, there must be no error.
    private func expectEnd(_ command: [String], _ answers: [String], _ code: Int, _ words: String) throws {
        let (shown, errors) = try place.terminal(command, answers: answers)
        #expect(shown.hasSuffix("exit \(code)\n") && !shown.contains("echo off"), "\(answers): \(shown)\(errors)")
        #expect(words.isEmpty ? errors.isEmpty : errors.contains(words), "\(answers): \(errors)")
        // There may be two lines, because the last of three tries gives advice.
        #expect(Set(errors.split(separator: "\n")).count <= 2 && !(shown + errors).contains("battery"))
    }
}
