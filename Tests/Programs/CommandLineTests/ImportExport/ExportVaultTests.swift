import Foundation
import TestSupport
import Testing

/// `vaultfs export VAULT` to a destination that contains another vault.
@Suite(.timeLimit(.minutes(20))) struct ExportVaultTests {
    @Test("nothing is put into the vault itself, nor into another")
    func nothingIsPutIntoVault() throws {
        let (place, other) = (try SlotPlace(), try SlotPlace())
        let tree = place.file("tree")
        try Command(["mkdir", "-p", "\(tree)/vault"]).run().succeeded()
        for name in ["vault/vaultfs.json", "vault/notes", "plain"] { try place.directory.write("tree/\(name)", name) }
        try place.run(["import", tree, place.vault] + place.opening).succeeded()
        let before = try (place.configuration, other.configuration)
        let entries = try FileManager.default.contentsOfDirectory(atPath: place.vault).sorted()
        // The vault has the same name as the directory in it.
        let result = try place.run(["export", place.vault, place.file(""), "--overwrite"] + place.opening)
        #expect(result.exitCode == 11 && result.errors.contains("the vault or source itself is there"), "\(result)")
        #expect(FileManager.default.fileExists(atPath: place.file("plain")))
        let whole = try place.run(["export", place.vault, other.vault] + place.opening)
        #expect(whole.exitCode == 1 && whole.errors.contains("is a vault: choose another destination"), "\(whole)")
        #expect(try (place.configuration, other.configuration) == before)
        #expect(try FileManager.default.contentsOfDirectory(atPath: place.vault).sorted() == entries)
    }

    @Test("a path below a vault is named as that, and a missing vault with the command that makes it")
    func pathBelowVault() throws {
        let place = try SlotPlace()
        let below = "\(place.vault)/old/letters"
        for command in [["export", below, place.file("out")], ["import", place.file("new"), below]] {
            try place.expectRefusal(
                2, "\(below) is below the vault \(place.vault): a path in it is written \(place.vault):old/letters"
            ) {
                try place.run(command)
            }
        }
        let missing = place.file("missing")
        for path in [missing, "\(missing):letters"] {
            try place.expectRefusal(
                3, "no such directory: \(missing); make a vault there with 'vaultfs init \(missing)'\n"
            ) {
                try place.run(["import", place.file("new"), path])
            }
        }
    }

    @Test(
        "Log-8: a log that is none is reported, with exit code 8, and the files are exported",
        arguments: [[], ["--verify"]])
    func damagedLog(options: [String]) throws {
        let place = try SlotPlace()
        let tree = place.file("tree")
        try Command(["mkdir", tree]).run().succeeded()
        try place.directory.write("tree/notes", "kept")
        try place.run(["import", tree, place.vault] + place.opening).succeeded()
        let log = "\(place.vault)/vaultfs.log"
        unlink(log)
        try Data("no log".utf8).write(to: URL(fileURLWithPath: log))
        let result = try place.run(["export", place.vault, place.file("out")] + options + place.opening)
        #expect(result.exitCode == 8, "\(result)")
        #expect(try String(contentsOfFile: place.file("out/notes"), encoding: .utf8) == "kept")
        #expect(result.output.hasPrefix("exported 1 file"), "\(result)")
        #expect(result.errors.hasPrefix("vaultfs: vaultfs.log "), "\(result)")
        #expect(result.errors.split(separator: "\n").count == 1, "\(result)")
        #expect(try String(contentsOfFile: log, encoding: .utf8) == "no log")
        // One more thing is wrong: the worse one gives the code.
        try place.directory.write("out/notes", "changed")
        let failing = try place.run(["export", place.vault, place.file("out")] + place.opening)
        #expect(failing.exitCode == 8 && failing.errors.split(separator: "\n").count > 1, "\(failing)")
    }
}
