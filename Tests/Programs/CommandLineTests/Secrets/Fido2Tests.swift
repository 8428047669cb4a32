import Foundation
import TestSupport
import Testing

/// `vaultfs-fido2`, the key provider over fido2-tools, with security keys in software.
@Suite(.timeLimit(.minutes(60))) struct Fido2Tests {
    private static let prompt = "Enter PIN for \(SecurityKeys.first): "
    private let place: SlotPlace
    private let keys: SecurityKeys
    private let file: String

    init() throws {
        place = try SlotPlace()
        keys = try SecurityKeys(in: place)
        file = place.file("key")
        try keys.plug([SecurityKeys.first: [:]])
        try FileManager.default.createDirectory(atPath: place.file("run"), withIntermediateDirectories: false)
    }

    /// Returns all programs by name, those of fido2-tools from `programs`, and a run-time directory to inspect.
    private func environment(programs: String? = nil) -> [String: String] {
        ["PATH": SlotPlace.path(after: programs ?? keys.programs), "XDG_RUNTIME_DIR": place.file("run")]
    }

    /// Runs the command without a terminal.
    private func run(_ command: [String], programs: String? = nil, input: String? = nil) throws -> CommandResult {
        try Command(["setsid", "--wait"] + command, environment: environment(programs: programs), input: input).run()
    }

    private func enrolling(_ options: [String] = [], with opening: [String]? = nil) -> [String] {
        ["vaultfs-fido2", "enroll"] + options + [place.vault, file] + (opening ?? place.opening)
    }

    private func opening(_ options: [String] = []) -> [String] {
        let provider = (["vaultfs-fido2", "secret"] + options + [file]).joined(separator: " ")
        return ["vaultfs", "slot", "list", place.vault, "--provider", provider]
    }

    /// Runs the command on a terminal, with these answers. Returns the exit code, the terminal's output and the errors.
    private func onTerminal(
        _ answers: [String], _ command: [String]
    ) throws -> (code: String?, shown: String, errors: String) {
        try place.onTerminal(answers, command, environment: environment())
    }

    /// Expects the provider's refusal in one line, with the exit code of a wrong secret, and no file left.
    private func expectRefusal(
        _ words: String, options: [String] = [], programs: String? = nil,
        sourceLocation: SourceLocation = #_sourceLocation
    ) throws {
        let result = try run(opening(options), programs: programs)
        place.expectRefused(result, words, sourceLocation: sourceLocation)
        try expectNothingLeft(sourceLocation: sourceLocation)
    }

    /// Expects `enroll` to fail with this line, without adding a slot or a file.
    private func expectNoEnrollment(
        _ line: String, _ command: [String], programs: String? = nil, sourceLocation: SourceLocation = #_sourceLocation
    ) throws {
        let before = try place.configuration
        let result = try run(command, programs: programs)
        #expect(
            result.exitCode == 1 && result.errors == "vaultfs-fido2: \(line)\n", "\(result)",
            sourceLocation: sourceLocation)
        #expect(try place.configuration == before, sourceLocation: sourceLocation)
        #expect(!FileManager.default.fileExists(atPath: file), sourceLocation: sourceLocation)
        try expectNothingLeft(sourceLocation: sourceLocation)
    }

    private func expectNothingLeft(sourceLocation: SourceLocation = #_sourceLocation) throws {
        try place.expectNothingLeft(of: "vaultfs-fido2", sourceLocation: sourceLocation)
    }

    @Test("a secret that this key computes opens the vault, and another key's does not")
    func secretThatThisKeyComputes() throws {
        try run(enrolling()).succeeded()
        #expect(try place.slots().last?["kind"] as? String == "keyfile")
        #expect(try place.slots().last?["label"] as? String == "fido2")
        let attributes = try FileManager.default.attributesOfItem(atPath: file)
        #expect((attributes[.posixPermissions] as? NSNumber)?.intValue == 0o600)
        try run(opening()).succeeded()
        try expectNothingLeft()
        try keys.plug([SecurityKeys.first: ["secret": "second"]])
        try expectRefusal("\(file) was made with another security key than \(SecurityKeys.first), or it was reset")
        try keys.plug([SecurityKeys.first: ["untouched": true]])
        try expectRefusal("nobody touched the security key in time")
        try keys.plug([:])
        try expectRefusal("there is no security key here that")
    }

    @Test("a vault and a file whose names begin with a hyphen follow --")
    func hyphens() throws {
        let place = self.place.directory.path
        let inside = ["env", "-C", place]
        try Command(["mv", self.place.vault, "\(place)/-v"]).run().succeeded()
        try run(inside + ["vaultfs-fido2", "enroll", "--", "-v", "-key"] + self.place.opening).succeeded()
        let provider = ["--provider", "vaultfs-fido2 secret -- -key"]
        try run(inside + ["vaultfs", "slot", "list"] + provider + ["--", "-v"]).succeeded()
        #expect(try run(inside + ["vaultfs-fido2", "enroll", "-v", "-other"]).errors.contains("usage: "))
    }

    @Test("the secret crosses pipes alone, not arguments, environments or files")
    func secretCrossesPipesAlone() throws {
        // Record every argument, variable and byte, in hexadecimal, with the kind of each descriptor. Each process has
        // its file (-ff), because strace interrupts a line when another process makes a call.
        let trace = place.file("trace")
        let calls = "trace=execve,read,write,readv,writev,pread64,pwrite64,sendto,sendmsg"
        let watching = ["strace", "-ff", "-v", "-y", "-xx", "-s", "65536", "-e", calls, "-o", trace]
        try run(watching + enrolling()).succeeded()
        let request = "{\"request\":\"secret\",\"slots\":[],\"vault\":\"\(try place.vaultID())\"}"
        // Use a pipe, because the output of a test's command is a file.
        let piped = ["sh", "-c", "\"$@\" | cat", "sh", "vaultfs-fido2", "secret", file]
        let answer = try run(piped, input: request).succeeded().output
        let parts = answer.split(separator: "\"")
        let encoded = try #require(parts.count > 9 ? String(parts[9]) : nil)
        let secret = try #require(Data(base64Encoded: encoded))
        #expect(secret.count == 32)
        let forms = [Data(encoded.utf8), secret].map { form in
            form.map { "\\x" + String($0 >> 4, radix: 16) + String($0 & 15, radix: 16) }.joined()
        }
        let all = try Command(["sh", "-c", "cat \"$1\".*", "sh", trace]).run().succeeded().output
        let lines = all.split(separator: "\n")
        let found = lines.filter { line in forms.contains { line.contains($0) } }
        // The trace must have both forms, once written and once read.
        for form in forms { #expect(found.contains { $0.contains(form) }) }
        // Each descriptor must be a pipe, which is in hexadecimal too.
        let onPipe = /^(read|write)\(\d+<\\x70\\x69\\x70\\x65\\x3a/
        for line in found { #expect(line.firstMatch(of: onPipe) != nil, "\(line)") }
    }

    @Test("a PIN, which fido2-tools ask for on the terminal")
    func pinWhichFidoTools() throws {
        let key: [String: Any] = ["pin": "1234"]
        try keys.plug([SecurityKeys.first: key])
        let pin = "\(Self.prompt)=1234"
        try expectNoEnrollment("the security key needs its PIN, and there is no terminal", enrolling())
        // First fido2-assert asks, then vaultfs.
        var outcome = try onTerminal(
            [pin, pin, "\(SlotPlace.question)\(SlotPlace.passphrase)"], Array(enrolling().dropLast(2)))
        #expect(outcome.code == "exit 0", "\(outcome)")
        #expect(outcome.shown.contains("Type the PIN of the security key, then touch the key when it blinks."))
        #expect(try String(contentsOfFile: file, encoding: .utf8).contains("\npin required\n"))
        outcome = try onTerminal([pin], opening())
        #expect(outcome.code == "exit 0", "\(outcome)")
        try expectRefusal("there is no terminal")
        // Even if the file lacks "pin required", the key refuses without its PIN.
        let lines = try String(contentsOfFile: file, encoding: .utf8)
        try place.directory.write("key", lines.replacingOccurrences(of: "pin required\n", with: ""))
        try expectRefusal("was made with another security key")
        try place.directory.write("key", lines)
        for _ in 1...3 {
            outcome = try onTerminal(["\(Self.prompt)=4321"], opening())
            #expect(
                outcome.code == "exit 4" && outcome.errors.hasSuffix("refused: wrong PIN of the security key\n"),
                "\(outcome)")
        }
        outcome = try onTerminal([pin], opening())
        #expect(outcome.errors.contains("accepts none until it is plugged in again"), "\(outcome)")
        try keys.plug([SecurityKeys.first: key.merging(["failed": 8]) { $1 }])
        outcome = try onTerminal([pin], opening())
        #expect(outcome.errors.contains("accepts none until it is reset"), "\(outcome)")
        try expectNothingLeft()
    }

    @Test("--no-pin: a touch is enough, also of a key that has a PIN")
    func touchIsEnough() throws {
        try keys.plug([SecurityKeys.first: ["pin": "1234", "extensions": ["hmac-secret"]]])
        let outcome = try onTerminal([], enrolling())
        #expect(outcome.code == "exit 1" && outcome.errors.contains("does not insist on its PIN"), "\(outcome)")
        #expect(try onTerminal(["\(Self.prompt)=1234"], enrolling(["--no-pin"])).code == "exit 0")
        try run(opening()).succeeded()
    }

    @Test("of several keys, the one that --device names")
    func severalKeys() throws {
        try keys.plug([SecurityKeys.first: [:], SecurityKeys.second: ["secret": "second"]])
        let several = "there are several security keys: choose one with --device"
        let result = try run(enrolling())
        #expect(result.exitCode == 1 && result.errors.contains(several), "\(result)")
        try run(enrolling(["--device", SecurityKeys.second])).succeeded()
        try expectRefusal(several)
        try run(opening(["--device", SecurityKeys.second])).succeeded()
        try expectRefusal("was made with another security key", options: ["--device", SecurityKeys.first])
        try expectRefusal("/dev/hidraw9: FIDO_ERR_INTERNAL", options: ["--device", "/dev/hidraw9"])
    }

    @Test("a file that was damaged, is another vault's, or is not there")
    func fileThatWasDamaged() throws {
        try run(enrolling()).succeeded()
        let lines = try String(contentsOfFile: file, encoding: .utf8).split(separator: "\n").map(String.init)
        #expect(lines.count == 4)
        for index in lines.indices {
            try place.directory.write("key", (lines[..<index] + lines[(index + 1)...]).joined(separator: "\n"))
            try expectRefusal(file)
        }
        for line in ["pin no", "pin required -o x"] {
            try place.directory.write("key", (lines + [line]).joined(separator: "\n"))
            try expectRefusal("is damaged")
        }
        let id = try place.vaultID()
        let other = lines.joined(separator: "\n")
            .replacingOccurrences(of: id, with: String(id.reversed()))
        try place.directory.write("key", other)
        try expectRefusal("\(file) is for another vault")
        try place.directory.write("key", String(repeating: "\u{0}\u{1}\"\\", count: 5000))
        try expectRefusal("was not made by vaultfs-fido2")
        try Command(["rm", file]).run().succeeded()
        try expectRefusal("cannot read \(file)")
    }

    @Test("an enrollment that fails leaves neither a file nor a slot")
    func enrollmentThatFails() throws {
        var result = try run(enrolling(with: ["--passfile", place.file("new")]))
        #expect(result.exitCode == 1 && result.errors.hasSuffix("vaultfs-fido2: no slot was added\n"), "\(result)")
        #expect(try place.slots().count == 1 && !FileManager.default.fileExists(atPath: file))
        try keys.plug([SecurityKeys.first: ["untouched": true]])
        try expectNoEnrollment("nobody touched the security key in time", enrolling())
        try keys.plug([SecurityKeys.first: ["extensions": ["credProtect", "hmac-secret-mc"]]])
        try expectNoEnrollment(
            "the security key \(SecurityKeys.first) has no secrets to give (hmac-secret)", enrolling())
        // First a key that answers without the secret, then one that does not protect its credential by a PIN.
        try keys.plug([SecurityKeys.first: [:]])
        try expectNoEnrollment(
            "the security key returned no secret", enrolling(),
            programs: replacing("fido2-assert", #""$real" "$@" | head -n 4"#))
        try keys.plug([SecurityKeys.first: ["pin": "1234"]])
        let careless = try replacing("fido2-cred", #"[ "$1" = -V ] || set -- -M -h "$5"; exec "$real" "$@""#)
        let path = environment(programs: careless)["PATH"] ?? ""
        let outcome = try onTerminal(["\(Self.prompt)=1234"], ["PATH=\(path)"] + enrolling())
        #expect(outcome.errors.contains("has not made the credential that it was asked for"), "\(outcome)")
        #expect(outcome.code == "exit 1" && !FileManager.default.fileExists(atPath: file), "\(outcome)")
        try place.directory.write("key", "mine")
        result = try run(enrolling())
        #expect(result.exitCode == 1 && result.errors == "vaultfs-fido2: \(file) is there already\n", "\(result)")
        #expect(try String(contentsOfFile: file, encoding: .utf8) == "mine")
    }

    @Test("usage, and fido2-tools that are not installed")
    func usage() throws {
        for program in ["vaultfs-fido2", "vaultfs-tpm2"] {
            let help = try run([program, "--help"])
            #expect(help.exitCode == 0 && help.errors.isEmpty, "\(help)")
            #expect(help.output.hasPrefix("usage: \(program) enroll "))
            for arguments in [[], ["what"], ["enroll", "--what"], ["enroll", place.vault]] {
                let result = try run([program] + arguments)
                #expect(result.exitCode == 1 && result.errors.hasPrefix("\(program): usage: "), "\(result)")
            }
        }
        let few = place.file("few")
        let names = ["env", "sh", "realpath", "dirname", "basename", "tr", "sed", "grep"]
        try Command(["mkdir", few]).run().succeeded()
        for name in names { try Command(["ln", "-s", "/usr/bin/\(name)", few]).run().succeeded() }
        let result = try Command(
            ["env"] + enrolling(), environment: ["PATH": SlotPlace.path(before: few)]
        ).run()
        #expect(result.errors == "vaultfs-fido2: fido2-token is missing (Debian: apt install fido2-tools)\n")
    }

    /// Makes a directory with the programs, one of them replaced by this script. `$real` is the program.
    private func replacing(_ program: String, _ script: String) throws -> String {
        let directory = place.file("replaced-\(program)")
        let write = #"mkdir "$1"; ln -s "$2"/* "$1/"; rm "$1/$3"; cat >"$1/$3"; chmod 755 "$1/$3""#
        try Command(
            ["sh", "-ec", write, "sh", directory, keys.programs, program],
            input: "#!/bin/sh\nreal='\(keys.programs)/\(program)'\n\(script)\n"
        ).run().succeeded()
        return directory
    }
}
