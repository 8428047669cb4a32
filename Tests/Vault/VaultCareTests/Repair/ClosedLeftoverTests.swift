import Foundation
import Glibc
import LinuxSystem
import SystemPackage
import TestSupport
import Testing

@testable import VaultCare
@testable import VaultStore
@testable import VaultStoreTests

/// Directories left by a kill under a temporary name, with modes that deny access to their owner, who is not root.
@Suite(.timeLimit(.minutes(60)), .enabled(if: geteuid() == 0)) struct ClosedLeftoverTests {
    private func leftovers(in path: String) throws -> [String] {
        try FileManager.default.contentsOfDirectory(atPath: path).filter { $0.hasPrefix("vaultfs.tmp.") }
    }

    private func mode(of path: String) -> mode_t? {
        var status = stat()
        return lstat(path, &status) == 0 ? status.st_mode & 0o7777 : nil
    }

    @Test(
        "a repair removes what a mkdir has left, whenever it was killed",
        arguments: [0, 0o300, 0o400, 0o500] as [mode_t])
    func repairRemovesWhatMkdir(mode: mode_t) throws {
        let vault = try OrdinaryUser.act { try VerifierVault { _ in } }
        let copies = DirectoryCopies(of: vault.path)
        try copies.takeBeforeEachChange(includingAttributes: true) { () throws in
            try OrdinaryUser.act {
                try vault.write { try $0.root.makeDirectory(ascii("closed"), mode: mode, owner: nil) }
            }
        }
        let unfinished = try copies.paths.filter { try !leftovers(in: $0).isEmpty }
        #expect(unfinished.count > 4)
        for (call, copy) in unfinished.enumerated() {
            try copies.putBack(copy)
            #expect(try OrdinaryUser.act { try vault.repair() } == [], "before call \(call)")
            #expect(try leftovers(in: vault.path) == [], "before call \(call)")
        }
    }

    @Test("a rekey comes to its end", arguments: [0, 0o300, 0o400, 0o500] as [mode_t])
    func rekeyComesToItsEnd(mode: mode_t) throws {
        let vault = try ClosedVault(modes: [:]) { try $0.file("file", count: 10) }
        let script = "mkdir $1; cp vaultfs.dir $1; chown -R \(OrdinaryUser.id) $1; chmod \(String(mode, radix: 8)) $1"
        try Command(["env", "-C", vault.path, "sh", "-ec", script, "sh", "vaultfs.tmp.1f"]).run().succeeded()
        let (outcome, problems) = try ClosedVault.rekey(vault.path)
        #expect(outcome.isFinished && problems == [])
        #expect(try ClosedVault.isClean(vault.path))
    }

    @Test("one that holds something stays, closed")
    func oneThatHoldsSomethingStays() throws {
        let vault = try OrdinaryUser.act { try VerifierVault { _ in } }
        let leftover = vault.path + "/vaultfs.tmp.1f"
        try OrdinaryUser.act {
            try Command(["sh", "-ec", "mkdir $1; echo x >$1/file; chmod 300 $1", "sh", leftover]).run().succeeded()
            #expect(try vault.repair() == ["vaultfs.tmp.1f: it holds something, and stays"])
        }
        #expect(mode(of: leftover) == 0o300 && mode(of: leftover + "/file") != nil)
    }

    @Test("a mkdir that fails leaves nothing")
    func mkdirThatFailsLeavesNothing() throws {
        let vault = try OrdinaryUser.act { try VerifierVault { try $0.file("there", count: 1) } }
        try OrdinaryUser.act {
            try vault.write { writer in
                #expect(throws: StoreError.system(.fileExists)) {
                    try writer.root.makeDirectory(ascii("there"), mode: 0, owner: nil)
                }
            }
        }
        #expect(try leftovers(in: vault.path) == [])
    }
}
