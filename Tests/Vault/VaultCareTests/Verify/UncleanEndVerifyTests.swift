import Foundation
import Glibc
import SystemPackage
import Testing
import VaultFormat

@testable import VaultCare
@testable import VaultStore
@testable import VaultStoreTests

/// `verify` on files without a header and directories without a record, and their repair.
@Suite(.timeLimit(.minutes(60))) struct UncleanEndVerifyTests {
    private let vault: VerifierVault

    /// Makes a file without a header, an empty directory without a record, and another with a file in it.
    init() throws {
        vault = try VerifierVault { writer in
            try writer.file("file", count: 5000)
            try writer.file("cut", count: 10)
            _ = try writer.directory("empty")
            try writer.file("inside", count: 10, in: try writer.directory("filled"))
        }
        try #require(truncate(try vault.backing("cut"), 0) == 0)
    }

    private func removeRecords(_ names: [String]) throws {
        for path in try names.map({ try vault.backing($0) }) { try #require(unlink(path + "/vaultfs.dir") == 0) }
    }

    private func setLockFile(_ text: String) throws {
        try Data(text.utf8).write(to: URL(filePath: vault.path + "/vaultfs.lock"))
    }

    private func lockFile() throws -> String {
        String(decoding: try VerifierVault.contents(vault.path + "/vaultfs.lock"), as: UTF8.self)
    }

    @Test("incomplete objects are damage after a clean end", arguments: [nil, "", "\n"])
    func clean(lock: String?) throws {
        try removeRecords(["empty"])
        if let lock { try setLockFile(lock) }
        #expect(try vault.found() == ["damaged cut", "missing empty"])
    }

    @Test(
        "Store-38: incomplete objects are notes after an unclean end, except a directory that is not empty",
        arguments: ["1 boot 7 host 1 1\n", "1 boot 7 host\n", "incomplete\n", "any bytes"])
    func unclean(lock: String) throws {
        try removeRecords(["empty"])
        try setLockFile(lock)
        #expect(try vault.found() == ["incomplete cut", "incomplete empty"])
        #expect(try vault.findings().totals.damage == 0)
        try removeRecords(["filled"])
        #expect(try vault.found().filter { !$0.hasPrefix("incomplete") } == ["missing filled"])
    }

    @Test("a repair completes incomplete objects, and only then the vault's end is clean")
    func repaired() throws {
        try removeRecords(["empty"])
        try setLockFile("1 boot 7 host 1 1\n")
        for isComplete in [false, true] {
            let directory = try VaultDirectory.open(FilePath(vault.path))
            try directory.lock(.exclusive, wait: .seconds(60))
            let findings = try findings(directory)
            #expect(findings.count == (isComplete ? 0 : 2) && findings.allSatisfy { $0.remedy == .complete })
            let repairer = try Repairer(directory: directory, masterKey: vault.masterKey)
            #expect(try repairer.run(findings).isEmpty)
            if isComplete { directory.clearUncleanEnd() }
            directory.releaseWriterLock()
            #expect(try lockFile() == (isComplete ? "\n" : "incomplete\n"))
        }
        #expect(try vault.tree()["cut"] == [])
        #expect(try vault.found() == [])
        #expect(try vault.tree().keys.sorted() == ["cut", "file", "filled/inside"])
    }

    private func findings(_ directory: VaultDirectory) throws -> [VerifierFinding] {
        var findings: [VerifierFinding] = []
        _ = try Verifier(directory: directory, masterKey: vault.masterKey).run(onFinding: { findings.append($0) })
        return findings
    }

    @Test("a rekey that ends properly does not make the vault's end clean")
    func rekeyed() throws {
        let vault = try RekeyVault()
        try Data("1 boot 7 host 1 1\n".utf8).write(to: URL(filePath: vault.path + "/vaultfs.lock"))
        let (directory, masterKey, slot) = try RekeyVault.open(vault.path)
        try directory.lock(.exclusive, wait: .seconds(60))
        let newKey = try RekeyStart.begin(
            directory, keeping: slot, secret: .passphrase(RekeyVault.passphrase), masterKey: masterKey)
        let rekeyer = try Rekeyer(
            directory: try directory.reread(), masterKey: newKey, isStopped: { false }, onProblem: { _, _ in })
        let workspace = try Workspace(layout: vault.vault.layout)
        #expect(try rekeyer.run(workspaces: [workspace]).isFinished)
        let text = try VerifierVault.contents(vault.path + "/vaultfs.lock")
        #expect(String(decoding: text, as: UTF8.self) == "incomplete\n")
    }
}
