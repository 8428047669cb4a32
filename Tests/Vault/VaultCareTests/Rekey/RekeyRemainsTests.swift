import Foundation
import Glibc
import Testing

@testable import VaultCare
@testable import VaultStoreTests

/// A finished rekey must leave no data of the old epoch outside the tree (FileFormat, Store-28).
@Suite(.timeLimit(.minutes(60))) struct RekeyRemainsTests {
    private let vault: RekeyVault

    init() throws {
        vault = try RekeyVault { writer in
            let file = try writer.file("file", count: 5000)
            // The overwrite goes through the log.
            try writer.write(100, to: file, at: 0)
        }
    }

    @Test(
        "changes that a killed daemon has left in the log are there after a rekey, also after one that was interrupted")
    func logged() throws {
        try vault.vault.logChanges([7, 8, 9], of: ["file"])
        let expected =
            try [7, 8, 9] + #require(RekeyVault.tree(at: vault.path, isReadOnly: true)["file"]).contents[3...]
        let interrupted = try RekeyVault.rekey(vault.path, isStopped: { true })
        #expect(!interrupted.isFinished)
        #expect(try RekeyVault.tree(at: vault.path, isReadOnly: true)["file"]?.contents == expected)
        #expect(try RekeyVault.rekey(vault.path).isFinished)
        #expect(try RekeyVault.tree(at: vault.path)["file"]?.contents == expected)
    }

    @Test("a leftover that cannot be swept keeps the rekey unfinished, and is named, until it is removed")
    func leftover() throws {
        let leftover = vault.path + "/vaultfs.tmp.77"
        #expect(mkdir(leftover, 0o755) == 0)
        try FileManager.default.copyItem(atPath: try vault.vault.backing("file"), toPath: leftover + "/old")
        let outcome = try RekeyVault.rekey(
            vault.path, onProblem: { path, reason in #expect(path == "vaultfs.tmp.77" && reason.contains("leftover")) })
        #expect(!outcome.isFinished && outcome.totals.problems == 1)
        try FileManager.default.removeItem(atPath: leftover)
        #expect(try RekeyVault.rekey(vault.path).isFinished)
    }
}
