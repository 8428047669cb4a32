import Foundation
import TestSupport
import Testing

/// `vaultfs export VAULT` to a destination that contains another vault.
@Suite(.timeLimit(.minutes(20))) struct ExportVaultTests {
    @Test func `nothing is put into the vault itself, nor into another`() throws {
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
}
