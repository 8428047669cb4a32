import FileSystem
import Foundation
import Glibc
import LinuxSystem
import Synchronization
import SystemPackage
import TestSupport
import Testing
import VaultCrypto
import VaultFormat

@testable import VaultStore

/// An ordinary user's rekey of what he has closed to himself.
@Suite(.timeLimit(.minutes(20))) struct RekeyClosedTests {
    private func vault(_ fill: (VerifierVaultWriter) throws -> Void) throws -> RekeyVault {
        try OrdinaryUser.act { try RekeyVault(fill) }
    }

    private func mode(of path: String) -> mode_t {
        var status = stat()
        return lstat(path, &status) == 0 ? status.st_mode & 0o7777 : 0
    }

    @Test("a slot of the journal stays that is of a file which is closed to its owner", arguments: [mode_t(0o200), 0])
    func journalSlot(mode: mode_t) throws {
        let vault = try vault { writer in try writer.file("file", count: 5000) }
        try OrdinaryUser.act {
            try RekeyVault.beginWithJournaledFile(vault.path, mode: mode)
            #expect(try RekeyVault.rekey(vault.path).isFinished)
        }
        try RekeyVault.expectRetained(vault.path)
        #expect(self.mode(of: try RekeyVault.backing("made meanwhile", in: vault.path)) == mode)
    }

    @Test("a closed directory that has lost its name keeps the rekey unfinished", arguments: [mode_t(0), 0o300, 0o600])
    func nameless(mode: mode_t) throws {
        let long = RekeyVault.long
        let vault = try vault { writer in try writer.file("file", count: 10, in: try writer.directory(long)) }
        let entry = try vault.vault.backing(long)
        let sidecar = try VerifierVault.contents(entry + ".name")
        #expect(unlink(entry + ".name") == 0 && chmod(entry, mode) == 0)
        try OrdinaryUser.act {
            let outcome = try RekeyVault.rekey(vault.path)
            #expect(!outcome.isFinished && outcome.totals.problems > 0)
            #expect(self.mode(of: entry) == mode)
            #expect(try VaultDirectory.open(FilePath(vault.path)).configuration.isRekeying)
            try Data(sidecar).write(to: URL(filePath: entry + ".name"))
            #expect(try RekeyVault.rekey(vault.path).isFinished)
        }
    }

    @Test("what a file system keeps for root at its own root is no object of a vault", .enabled(if: geteuid() == 0))
    func lostAndFound() throws {
        let vault = try vault { writer in try writer.file("file", count: 10) }
        #expect(mkdir(vault.path + "/lost+found", 0o700) == 0)
        let outcome = try OrdinaryUser.act { try RekeyVault.rekey(vault.path) }
        #expect(outcome.isFinished && outcome.totals.problems == 0)
    }

    @Test("another's directory that cannot be looked at may be the vault's", .enabled(if: geteuid() == 0))
    func others() throws {
        let vault = try vault { writer in try writer.file("file", count: 10) }
        #expect(mkdir(vault.path + "/somebody's", 0o700) == 0)
        let outcome = try OrdinaryUser.act { try RekeyVault.rekey(vault.path) }
        #expect(!outcome.isFinished && outcome.totals.problems > 0)
        #expect(rmdir(vault.path + "/somebody's") == 0)
        let next = try OrdinaryUser.act { try RekeyVault.rekey(vault.path) }
        #expect(next.isFinished)
    }

    @Test("a file that is closed to its owner keeps its attributes", arguments: [mode_t(0o200), 0])
    func attributes(mode: mode_t) throws {
        let vault = try vault { writer in
            let file = try writer.file("file", count: 5000)
            try writer.setAttribute("user.color", "red", key: file.keys.attributeKey, on: file.anyDescriptor)
            try ExtendedAttributes(file.anyDescriptor).set(ascii("user.plain"), ascii("kept"), flags: 0)
            #expect(fchmod(file.anyDescriptor.fd, mode) == 0)
        }
        let outcome = try OrdinaryUser.act { try RekeyVault.rekey(vault.path) }
        #expect(outcome.isFinished)
        #expect(self.mode(of: try RekeyVault.backing("file", in: vault.path)) == mode)
        #expect(chmod(try RekeyVault.backing("file", in: vault.path), 0o600) == 0)
        let shown = try RekeyVault.tree(at: vault.path)["file"]
        #expect(shown?.attributes["user.color"] == ascii("red") && shown?.attributes["user.plain"] == ascii("kept"))
    }
}
