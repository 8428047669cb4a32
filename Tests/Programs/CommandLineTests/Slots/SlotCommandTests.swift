import Foundation
import TestSupport
import Testing
import VaultFormat

/// `vaultfs slot`, through the binary.
@Suite(.timeLimit(.minutes(20))) struct SlotCommandTests {
    private let place: SlotPlace

    init() throws { place = try SlotPlace() }

    @Test("a slot of each kind is added, and opens the vault")
    func slotOfEachKind() throws {
        let (new, keyfile) = (place.file("new"), place.file("keyfile"))
        let sources = [
            (["--new-passfile", new], ["--passfile", new]),
            (["--new-keyfile", keyfile], ["--keyfile", keyfile]),
        ]
        for (giving, opening) in sources {
            #expect(try !place.opens(opening))
            let added = try place.slot("add", place.opening + giving + ["--scrypt-logn", "10", "--json"])
            let slot = try #require(place.fields(added.succeeded())["slot"] as? [String: Any])
            #expect(try place.opens(opening))
            try place.slot("remove", place.opening + ["\(try #require(slot["id"] as? Int))"]).succeeded()
            #expect(try !place.opens(opening))
        }
        let fromDescriptor = place.opening + ["--new-passfile", "/dev/fd/0", "--scrypt-logn", "10"]
        try place.slot("add", fromDescriptor, input: "battery staple").succeeded()
        #expect(try place.opens(["--passfile", new]))
    }

    @Test("a recovery key is printed once, and opens the vault", arguments: [[], ["--json"]])
    func recoveryKeyIsPrintedOnce(format: [String]) throws {
        let result = try place.slot("add", place.opening + ["--new-recovery-key", "--label", "safe"] + format)
        let key = try #require(result.succeeded().output.firstMatch(of: /([0-9a-f]{8}-){8}[0-9a-f]{8}/)?.output.0)
        try place.directory.write("recovery", String(key))
        #expect(try place.opens(["--recovery-key", "--passfile", place.file("recovery")]))
        #expect(!(try String(decoding: place.configuration, as: UTF8.self).contains(key)))
    }

    @Test("a recovery key that cannot be shown is that of no slot")
    func recoveryKeyThatCannot() throws {
        for format in [[], ["--json"]] {
            try place.expectRefusal(1, "the recovery key cannot be shown") {
                let command = ["slot", "change", place.vault, "--new-recovery-key"] + place.opening + format
                return try place.run(command, launcher: ["sh", "-c", "exec \"$@\" >/dev/full", "sh"])
            }
        }
    }

    @Test("a vault whose recovery key cannot be shown is not made")
    func vaultWhoseRecoveryKeyCannot() throws {
        let script = "exec \"$@\" >/dev/full"
        for format in [[], ["--json"]] {
            let result = try place.run(
                ["init", place.file("made"), "--passfile", place.file("passfile")] + format,
                launcher: ["sh", "-c", script, "sh"])
            #expect(result.exitCode == 1 && result.errors.contains("no vault was made"), "\(result)")
            #expect(!FileManager.default.fileExists(atPath: place.file("made")))
        }
    }

    @Test("the list: labels cannot drive the terminal, and a secret checks it")
    func listLabels() throws {
        let label = "a\u{1B}[31m\n\u{202E}\u{9B}'\\é"
        try place.slot(
            "add", place.opening + ["--new-keyfile", place.file("keyfile"), "--label", label, "--expires", "30d"]
        ).succeeded()
        let list = try place.slot("list", []).succeeded().output
        #expect(list.contains(#"keyfile 'a\u{1b}[31m\u{a}\u{202e}\u{9b}\'\\é', made 20"#))
        #expect(list.contains(/slot 1 +passphrase, made 20/) && list.contains("scrypt N=2^10 r=8 p=1\n"))
        #expect(list.contains("Not authenticated"))
        // `info` has the same lines.
        let lines = list.split(separator: "\n").filter { $0.hasPrefix("slot ") }
        let info = try place.run(["info", place.vault]).succeeded().output.split(separator: "\n")
        #expect(lines.count == 2 && info.filter { $0.hasPrefix("slot ") } == lines, "\(info)")
        #expect(try place.slots()[1]["label"] as? String == label)
        let report = try place.fields(place.slot("list", ["--json"]).succeeded())
        #expect(report["isAuthenticated"] as? Bool == false)
        let checked = try place.slot("list", ["--json"] + place.opening).succeeded()
        #expect(try place.fields(checked)["isAuthenticated"] as? Bool == true)
        let text = try String(decoding: place.configuration, as: UTF8.self)
        let changed = text.replacingOccurrences(of: "\"label\": \"\"", with: "\"label\": \"x\"")
        try place.directory.write("vault/vaultfs.json", changed)
        #expect(try place.slot("list", []).exitCode == 0)
        try place.expectRefusal(3, "damaged: changed without a secret: ") { try place.slot("list", place.opening) }
    }

    @Test("a slot that is changed keeps id, label and expiry, or gets others")
    func slotThatIsChangedKeeps() throws {
        let (new, keyfile) = (["--passfile", place.file("new")], ["--keyfile", place.file("keyfile")])
        try place.slot(
            "add",
            place.opening + [
                "--new-keyfile", place.file("keyfile"), "--label", "usb", "--expires", "2099-12-31T00:00:00Z",
            ]
        ).succeeded()
        try place.slot("change", keyfile + ["--new-passfile", place.file("new"), "--scrypt-logn", "11"]).succeeded()
        #expect(try !place.opens(keyfile))
        #expect(try place.opens(new) && place.opens(place.opening))
        var slot = try place.slots()[1]
        #expect(slot["id"] as? Int == 2 && slot["kind"] as? String == "passphrase")
        #expect(slot["label"] as? String == "usb" && slot["expires"] as? String == "2099-12-31T00:00:00Z")
        // One slot's secret opens the vault to change another slot. Expiry and label are given.
        try place.slot(
            "change",
            place.opening + ["2", "--new-keyfile", place.file("keyfile"), "--expires", "never", "--label", ""]
        ).succeeded()
        slot = try place.slots()[1]
        #expect(slot["label"] as? String == "" && slot["expires"] == nil)
        #expect(try place.opens(keyfile) && !place.opens(new) && place.opens(place.opening))
        // Renewed, with its current secret.
        try place.slot("change", keyfile + ["--keep-secret", "--expires", "2d"]).succeeded()
        #expect(try place.slots()[1]["expires"] != nil)
        #expect(try place.opens(keyfile))
        try place.expectRefusal(2, "the secret is that of slot 1; slot 2 is of the kind keyfile") {
            try place.slot("change", place.opening + ["2", "--keep-secret"])
        }
        try place.expectRefusal(1, "there is no slot 7") {
            try place.slot("change", place.opening + ["7", "--new-keyfile", place.file("keyfile")])
        }
    }

    @Test("a label is changed without a new secret, and without that of its slot")
    func labelWithoutSecret() throws {
        try place.slot("add", place.opening + ["--new-keyfile", place.file("keyfile")]).succeeded()
        let before = try place.slots()[1]
        let changed = try place.run(
            ["slot", "change", place.vault, "2", "--label", "stick"] + place.opening, launcher: ["setsid", "--wait"])
        #expect(changed.output.hasPrefix("Changed slot 2: keyfile 'stick', made "), "\(changed)")
        let slot = try place.slots()[1]
        #expect(slot["label"] as? String == "stick" && slot["created"] as? String == before["created"] as? String)
        #expect(try place.opens(["--keyfile", place.file("keyfile")]) && place.opens(place.opening))
    }

    @Test("a slot is named by its label, unless several have it")
    func slotByLabel() throws {
        let new = ["--new-passfile", place.file("new"), "--scrypt-logn", "10"]
        try place.slot("add", place.opening + new + ["--label", "usb stick"]).succeeded()
        try place.slot("add", place.opening + ["--new-keyfile", place.file("keyfile"), "--label", "2"]).succeeded()
        let list = try place.slot("list", ["--passfile", place.file("new"), "--slot", "usb stick"]).succeeded()
        #expect(list.output.contains("the secret opens slot 2."), "\(list)")
        try place.expectRefusal(1, "no slot has the label 'stick': 'vaultfs slot list' shows ids and labels") {
            try place.slot("remove", place.opening + ["stick"])
        }
        // A number is an id, also if another slot has it for a label.
        try place.slot("change", place.opening + ["2", "--label", "guest"]).succeeded()
        try place.slot("change", place.opening + ["3", "--label", "guest"]).succeeded()
        try place.expectRefusal(2, "slots 2, 3 have the label 'guest': give an id") {
            try place.slot("remove", place.opening + ["guest"])
        }
        try place.slot("change", place.opening + ["3", "--label", "key"]).succeeded()
        try place.slot("remove", place.opening + ["guest", "key"]).succeeded()
        #expect(try place.slots().map { $0["id"] as? Int } == [1])
    }

    @Test("the list names the slots that a secret opens")
    func listNamesOpenedSlots() throws {
        let same = ["--new-passfile", place.file("passfile"), "--scrypt-logn", "10"]
        try place.slot("add", place.opening + same).succeeded()
        try place.slot("add", place.opening + ["--new-passfile", place.file("new"), "--scrypt-logn", "10"]).succeeded()
        let list = try place.slot("list", place.opening).succeeded()
        #expect(list.output.hasSuffix("Authenticated: the secret opens slots 1, 2.\n"), "\(list)")
        let report = try place.fields(place.slot("list", place.opening + ["--json"]).succeeded())
        #expect(report["openedSlots"] as? [Int] == [1, 2])
        try place.expectRefusal(2, "the secret is that of slot 1; if it is that of slot 2 too, give --slot 2") {
            try place.slot("change", place.opening + ["2", "--keep-secret"])
        }
        // On a terminal, for one slot.
        var (shown, errors) = try place.terminal("list", ["--slot", "3"], answers: ["Passphrase: =battery staple"])
        #expect(shown.contains("the secret opens slot 3.") && shown.hasSuffix("exit 0\n"), "\(shown)\(errors)")
        (shown, errors) = try place.terminal("list", ["--slot", "2"], answers: thrice("Passphrase: =battery staple"))
        #expect(errors.contains("wrong passphrase") && shown.hasSuffix("exit 4\n"), "\(shown)\(errors)")
    }

    @Test("nor does it by another slot")
    func norDoesItByAnother() throws {
        try place.slot("change", place.opening + ["--keep-secret", "--scrypt-logn", "12"]).succeeded()
        let new = place.opening + ["--new-passfile", place.file("new")]
        let weaker = try place.slot("add", new + ["--scrypt-logn", "11"]).succeeded()
        let said =
            "vaultfs: warning: guessing is cheaper now: scrypt N=2^11 r=8 p=1, the vault has scrypt N=2^12 r=8 p=1"
        #expect(weaker.errors.contains(said))
        try place.slot("remove", place.opening + ["2"]).succeeded()
        #expect(try place.slot("add", new + ["--scrypt-logn", "12"]).succeeded().errors == "")
        let costly = try ScryptCost(logN: 19, r: 8, p: 1)
        #expect(ScryptCost.beside([try ScryptCost(logN: 12, r: 8, p: 1), costly]) == costly)
        #expect(ScryptCost.beside([]) == .standard)
    }

    @Test("nor by a passphrase in the place of a keyfile")
    func norByPassphraseInPlace() throws {
        try place.slot("change", place.opening + ["--keep-secret", "--scrypt-logn", "18"]).succeeded()
        // Two slots: one is changed, the other opens the vault quickly.
        let keyfile = ["--new-keyfile", place.file("keyfile")]
        for opening in [place.opening, ["--keyfile", place.file("keyfile")]] {
            try place.slot("add", opening + keyfile).succeeded()
        }
        let change = ["--keyfile", place.file("keyfile"), "2", "--new-passfile", place.file("new")]
        try place.expectRefusal(2, "guessing would be cheaper with scrypt N=2^10 r=8 p=1, the vault has scrypt N=2^18")
        {
            try place.slot("change", change + ["--scrypt-logn", "10"])
        }
        #expect(try place.slot("change", change).succeeded().errors.isEmpty)
        #expect(try place.slots()[1]["keyDerivation"] as? String == "scrypt N=2^18 r=8 p=1")
    }

    @Test("Store-22: guessing gets no cheaper")
    func guessing() throws {
        func change(_ options: [String]) throws -> String? {
            let result = try place.slot("change", place.opening + ["--keep-secret"] + options).succeeded()
            #expect(result.errors.isEmpty)
            return try place.slots()[0]["keyDerivation"] as? String
        }
        #expect(try change(["--scrypt-logn", "12"]) == "scrypt N=2^12 r=8 p=1")
        try place.expectRefusal(2, "guessing would be cheaper with scrypt N=2^11 r=8 p=1, the vault has scrypt N=2^12")
        {
            try place.slot("change", place.opening + ["--keep-secret", "--scrypt-logn", "11"])
        }
        // The default of a new slot, without options.
        #expect(try change([]) == "scrypt N=2^17 r=8 p=1")
        #expect(try change([]) == "scrypt N=2^17 r=8 p=1")
        #expect(try place.opens(place.opening))
    }

    @Test("removing: the last slot stays without force, and what is left is looked at")
    func removingLastSlotStays() throws {
        let keyfile = ["--keyfile", place.file("keyfile")]
        try place.expectRefusal(1, "can never be opened again") { try place.slot("remove", place.opening + ["1"]) }
        try place.expectRefusal(1, "there is no slot 2; the slots are: 1") {
            try place.slot("remove", place.opening + ["2", "--force"])
        }
        try place.slot("add", place.opening + ["--new-keyfile", place.file("keyfile"), "--expires", "1d"]).succeeded()
        try place.expectRefusal(1, "without the last slot that does not expire") {
            try place.slot("remove", place.opening + ["1"])
        }
        let removed = try place.slot("remove", place.opening + ["1", "--json", "--force"]).succeeded()
        #expect(removed.errors.contains("warning: every slot that is left expires: after 20"))
        let report = try place.fields(removed)
        #expect((report["removed"] as? [Any])?.count == 1 && (report["remaining"] as? [Any])?.count == 1)
        #expect(try !place.opens(place.opening))
        let last = try place.slot("remove", keyfile + ["2", "--force"]).succeeded()
        #expect(last.errors == "vaultfs: warning: nothing opens this vault any more\n")
        #expect(try !place.opens(keyfile))
        #expect(try place.slots().map { $0["label"] as? String } == ["nothing opens this slot"])
    }

    @Test("of two processes at once neither loses the other's slot")
    func ofTwoProcessesAtOnce() throws {
        let running = try (0..<6).map { number in
            try Command(
                [
                    Products.binary, "slot", "add", place.vault, "--new-keyfile", place.file("keyfile"), "--label",
                    "\(number)",
                ]
                    + place.opening
            ).start()
        }
        for process in running { #expect(process.wait(timeout: .seconds(60)) == 0, "\(process.errors)") }
        #expect(try Set(place.slots().compactMap { $0["label"] as? String }) == ["", "0", "1", "2", "3", "4", "5"])
    }
}
