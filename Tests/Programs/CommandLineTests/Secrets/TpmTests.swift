import Foundation
import TestSupport
import Testing

/// `vaultfs-tpm2`, the key provider over tpm2-tools, with a TPM in software.
@Suite(.timeLimit(.minutes(60))) struct TpmTests {
    private let place: SlotPlace
    private let tpm: SoftwareTpm
    private let sealed: String

    init() throws {
        place = try SlotPlace()
        tpm = try SoftwareTpm()
        sealed = place.file("sealed")
        try FileManager.default.createDirectory(atPath: place.file("run"), withIntermediateDirectories: false)
    }

    /// Returns an environment with both programs by name, this TPM (or none), and a run-time directory to inspect.
    private func environment(_ more: [String: String] = [:]) -> [String: String] {
        ["PATH": SlotPlace.path(), "TPM2TOOLS_TCTI": tpm.address, "XDG_RUNTIME_DIR": place.file("run")]
            .merging(more) { $1 }
    }

    private func enroll(_ options: [String] = [], with opening: [String]? = nil) throws -> CommandResult {
        let arguments = ["vaultfs-tpm2", "enroll"] + options + [place.vault, sealed] + (opening ?? place.opening)
        return try Command(["env"] + arguments, environment: environment()).run()
    }

    /// Opens the vault with the secret from the TPM.
    private func open(_ more: [String: String] = [:]) throws -> CommandResult {
        try Command(
            ["env", "vaultfs", "slot", "list", place.vault, "--provider", "vaultfs-tpm2 secret \(sealed)"],
            environment: environment(more)
        ).run()
    }

    /// Runs the command on a terminal, with these answers to its prompts. Returns the exit code and the output.
    private func onTerminal(_ answers: [String], _ command: [String]) throws -> (code: String?, errors: String) {
        let outcome = try place.onTerminal(answers, command, environment: environment())
        return (outcome.code, outcome.errors)
    }

    /// Expects the provider's refusal in one line, with the exit code of a wrong secret. Expects an empty directory.
    private func expectRefusal(
        _ words: String, _ more: [String: String] = [:], sourceLocation: SourceLocation = #_sourceLocation
    ) throws {
        place.expectRefused(try open(more), words, sourceLocation: sourceLocation)
        try expectNothingLeft(sourceLocation: sourceLocation)
    }

    private func expectNothingLeft(sourceLocation: SourceLocation = #_sourceLocation) throws {
        try place.expectNothingLeft(of: "vaultfs-tpm2", sourceLocation: sourceLocation)
    }

    @Test("a vault and a file whose names begin with a hyphen follow --")
    func hyphens() throws {
        let inside = ["env", "-C", place.directory.path]
        try Command(["mv", place.vault, place.file("-v")]).run().succeeded()
        let enroll = ["vaultfs-tpm2", "enroll", "--", "-v", "-sealed"] + place.opening
        try Command(inside + enroll, environment: environment()).run().succeeded()
        let list = ["vaultfs", "slot", "list", "--provider", "vaultfs-tpm2 secret -- -sealed", "--", "-v"]
        try Command(inside + list, environment: environment()).run().succeeded()
    }

    @Test("a secret that this TPM sealed opens the vault, also after the machine has started anew")
    func secretThatThisTpmSealed() throws {
        try enroll(["--pcrs", "4,7"]).succeeded()
        #expect(try place.slots().last?["kind"] as? String == "keyfile")
        #expect(try place.slots().last?["label"] as? String == "tpm2")
        let attributes = try FileManager.default.attributesOfItem(atPath: sealed)
        #expect((attributes[.posixPermissions] as? NSNumber)?.intValue == 0o600)
        try open().succeeded()
        #expect(try tpm.leftovers().isEmpty)
        try expectNothingLeft()
        try tpm.restart()
        try open().succeeded()
    }

    @Test("the secret does not cross to the TPM and back in the clear")
    func secretDoesNotCross() throws {
        try enroll().succeeded()
        let request = "{\"request\":\"secret\",\"slots\":[],\"vault\":\"\(try place.vaultID())\"}"
        let answer = try Command(
            ["env", "vaultfs-tpm2", "secret", sealed], environment: environment(), input: request
        ).run().succeeded().output
        let parts = answer.split(separator: "\"")
        let bytes = try #require(parts.count > 9 ? Data(base64Encoded: String(parts[9])) : nil)
        #expect(bytes.count == 32)
        let traffic = Data(try tpm.traffic())
        // The log must contain the first reply of a TPM: TPM_ST_NO_SESSIONS and no error.
        #expect(traffic.range(of: Data([0x80, 0x01, 0, 0])) != nil && traffic.count > 5000)
        #expect(traffic.range(of: bytes) == nil)
    }

    @Test("another TPM, or one that was cleared")
    func anotherTpm() throws {
        try enroll().succeeded()
        let other = try SoftwareTpm()
        try expectRefusal("made with another TPM", ["TPM2TOOLS_TCTI": other.address])
        try tpm.tool(["tpm2_clear"])
        try expectRefusal("made with another TPM, or this one has been cleared")
    }

    @Test("PCRs that have changed, until the machine starts as it did")
    func pcrsThatHaveChanged() throws {
        try enroll(["--pcrs", "7"]).succeeded()
        let digest = String(repeating: "1", count: 64)
        try tpm.tool(["tpm2_pcrextend", "4:sha256=\(digest)"])
        try open().succeeded()
        try tpm.tool(["tpm2_pcrextend", "7:sha256=\(digest)"])
        try expectRefusal("the PCRs 7 are not as they were")
        #expect(try tpm.leftovers().isEmpty)
        try tpm.restart()
        try open().succeeded()
    }

    @Test("a file that was damaged, is another's, or is not there")
    func fileThatWasDamaged() throws {
        try enroll().succeeded()
        let lines = try String(contentsOfFile: sealed, encoding: .utf8).split(separator: "\n").map(String.init)
        for (index, line) in lines.enumerated() {
            // Replace a digit or letter in the middle.
            var characters = Array(line)
            let middle = characters.count / 2
            characters[middle] = characters[middle] == "a" ? "b" : "a"
            var damaged = lines
            damaged[index] = String(characters)
            try place.directory.write("sealed", damaged.joined(separator: "\n"))
            try expectRefusal(place.file("sealed"))
        }
        try place.directory.write("sealed", lines.dropLast().joined(separator: "\n"))
        try expectRefusal("is damaged")
        try place.directory.write("sealed", (lines + ["pcrs 7 -o x"]).joined(separator: "\n"))
        try expectRefusal("is damaged")
        try place.directory.write("sealed", String(repeating: "\u{0}\u{1}\"\\", count: 5000))
        try expectRefusal("was not made by vaultfs-tpm2")
        try Command(["rm", sealed]).run().succeeded()
        try expectRefusal("cannot read \(sealed)")
    }

    @Test("a TPM that is off, hangs, or is not there")
    func tpmThatIsOff() throws {
        try enroll().succeeded()
        // A script shortens the timeout of the tools.
        let bin = place.file("bin")
        try FileManager.default.createDirectory(atPath: bin, withIntermediateDirectories: false)
        // Another process writes the script, because another test's child would inherit our descriptor for writing, and
        // the script could not be executed (ETXTBSY).
        let script = "#!/bin/sh\nshift 4\nexec /usr/bin/timeout -k 1 1 \"$@\"\n"
        try Command(["sh", "-c", "cat >'\(bin)/timeout' && chmod 755 '\(bin)/timeout'"], input: script).run()
            .succeeded()
        tpm.pause()
        let path = environment()["PATH"] ?? ""
        try expectRefusal("no answer within", ["PATH": "\(bin):\(path)"])
        tpm.resume()
        tpm.stop()
        try expectRefusal("the TPM does not answer")
        if !FileManager.default.fileExists(atPath: "/dev/tpmrm0") {
            try expectRefusal("no /dev/tpmrm0", ["TPM2TOOLS_TCTI": ""])
        }
        try expectRefusal("tpm2_unseal is missing", ["PATH": try pathWithoutTools()])
    }

    @Test("a PIN, which the TPM counts wrong ones of")
    func pinWhichTpm() throws {
        let pin = "hex:4142"
        let enrolling = ["vaultfs-tpm2", "enroll", "--pin", "--pcrs", "7", place.vault, sealed] + place.opening
        let opening = ["vaultfs", "slot", "list", place.vault, "--provider", "vaultfs-tpm2 secret \(sealed)"]
        var outcome = try onTerminal(["New PIN: =1234", "Once more: =1235"], enrolling)
        #expect(outcome.code == "exit 1" && outcome.errors == "vaultfs-tpm2: the two are not the same\n")
        #expect(try place.slots().count == 1 && !FileManager.default.fileExists(atPath: sealed))
        // After an interruption the provider restores the terminal, as `onTerminal` checks, and leaves nothing, as the
        // lines below check.
        outcome = try onTerminal(["New PIN: =\(pin)", "Once more: =^C"], enrolling)
        #expect(outcome.code == "exit 1", "\(outcome)")
        let asking = Array(enrolling.dropLast(2))
        outcome = try onTerminal(["New PIN: =\(pin)", "Once more: =\(pin)", "\(SlotPlace.question)^C"], asking)
        #expect(outcome.code != "exit 0" && !FileManager.default.fileExists(atPath: sealed), "\(outcome)")
        try expectNothingLeft()
        // A resource manager would remove an interrupted tool's objects from the TPM. There is none here, so restart.
        try tpm.restart()
        outcome = try onTerminal(["New PIN: =\(pin)", "Once more: =\(pin)"], enrolling)
        #expect(outcome.code == "exit 0", "\(outcome)")
        outcome = try onTerminal(["PIN for \(sealed): =\(pin)"], opening)
        #expect(outcome.code == "exit 0", "\(outcome)")
        #expect(Data(try tpm.traffic()).range(of: Data(pin.utf8)) == nil)
        try expectRefusal("there is no terminal")
        outcome = try onTerminal(["PIN for \(sealed): =\(pin)x"], opening)
        #expect(outcome.code == "exit 4" && outcome.errors.contains("refused: wrong PIN for"), "\(outcome)")
        #expect(try tpm.leftovers().isEmpty)
        try tpm.tool(
            ["tpm2_dictionarylockout", "--setup-parameters", "--max-tries=1", "--recovery-time=1000"]
                + ["--lockout-recovery-time=1000"])
        outcome = try onTerminal(["PIN for \(sealed): =\(pin)"], opening)
        #expect(outcome.code == "exit 4" && outcome.errors.contains("takes no PIN for a while"), "\(outcome)")
        try tpm.tool(["tpm2_dictionarylockout", "--clear-lockout"])
        #expect(try onTerminal(["PIN for \(sealed): =\(pin)"], opening).code == "exit 0")
    }

    @Test("an enrollment that fails leaves neither a file nor a slot")
    func enrollmentThatFailsLeavesNeither() throws {
        let wrong = ["--passfile", place.file("new")]
        let before = try place.configuration
        var result = try enroll(with: wrong)
        #expect(result.exitCode == 1 && result.errors.hasSuffix("vaultfs-tpm2: no slot was added\n"), "\(result)")
        for pcrs in ["16", "", "7;id", "1,", "sha1:7"] {
            #expect(try enroll(["--pcrs", pcrs]).errors.contains("--pcrs takes numbers"))
        }
        #expect(try enroll(["--what"]).errors.contains("usage: "))
        #expect(!FileManager.default.fileExists(atPath: sealed))
        try place.directory.write("sealed", "mine")
        result = try enroll()
        #expect(result.exitCode == 1 && result.errors == "vaultfs-tpm2: \(sealed) is there already\n", "\(result)")
        #expect(try place.configuration == before)
        #expect(try String(contentsOfFile: sealed, encoding: .utf8) == "mine")
        try expectNothingLeft()
    }

    @Test("links that wait in a shared directory are not followed")
    func linksThatWaitInShared() throws {
        try place.directory.write("victim", "mine")
        let (victim, absent) = (place.file("victim"), place.file("absent"))
        // The link has a predictable name: it contains the id of the process that becomes the script.
        let planting = ["sh", "-c", "ln -s \"$1\" \"$2.$$\"; shift 2; exec \"$@\"", "sh", victim, sealed]
        try Command(
            planting + ["env", "vaultfs-tpm2", "enroll", place.vault, sealed] + place.opening,
            environment: environment()
        ).run().succeeded()
        #expect(try String(contentsOfFile: victim, encoding: .utf8) == "mine")
        try open().succeeded()
        // This link has the file's own name.
        try Command(["ln", "-sf", absent, sealed]).run().succeeded()
        let result = try enroll()
        #expect(result.exitCode == 1 && result.errors == "vaultfs-tpm2: \(sealed) is there already\n", "\(result)")
        #expect(!FileManager.default.fileExists(atPath: absent))
    }

    @Test("a sealed file is for one vault")
    func sealedFile() throws {
        try enroll().succeeded()
        let other = place.file("other")
        try place.run(["init", other, "--scrypt-logn", "10", "--no-recovery-key"] + place.opening).succeeded()
        let result = try Command(
            ["env", "vaultfs", "slot", "list", other, "--provider", "vaultfs-tpm2 secret \(sealed)"],
            environment: environment()
        ).run()
        #expect(result.exitCode == 4 && result.errors.contains("\(sealed) is for another vault"), "\(result)")
    }

    /// Returns a PATH with everything except tpm2-tools.
    private func pathWithoutTools() throws -> String {
        let directory = place.file("few")
        let names = ["env", "sh", "sed", "tr", "grep", "head", "cat", "rm", "base64", "sha256sum", "timeout"]
        try Command(["mkdir", directory]).run().succeeded()
        for name in names { try Command(["ln", "-s", "/usr/bin/\(name)", directory]).run().succeeded() }
        return SlotPlace.path(before: directory)
    }
}
