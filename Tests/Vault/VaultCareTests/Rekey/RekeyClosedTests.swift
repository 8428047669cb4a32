import Foundation
import Glibc
import LinuxSystem
import SystemPackage
import TestSupport
import Testing
import VaultFormat

@testable import VaultCare
@testable import VaultStore
@testable import VaultStoreTests

/// A rekey by an ordinary user, of objects with modes that deny this user access.
@Suite(.timeLimit(.minutes(60))) struct RekeyClosedTests {
    private func vault(_ fill: (VerifierVaultWriter) throws -> Void) throws -> RekeyVault {
        try OrdinaryUser.act { try RekeyVault(fill) }
    }

    private func mode(of path: String) -> mode_t {
        var status = stat()
        return lstat(path, &status) == 0 ? status.st_mode & 0o7777 : 0
    }

    @Test(
        "a directory that denies access and has lost its name keeps the rekey unfinished",
        arguments: [mode_t(0), 0o300, 0o600])
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
        }
        #expect(chmod(entry, 0o700) == 0)
        try OrdinaryUser.act {
            try Data(sidecar).write(to: URL(filePath: entry + ".name"))
            #expect(try RekeyVault.rekey(vault.path).isFinished)
        }
    }

    @Test(
        "a file that the file system keeps for root at its own root is not an object of a vault",
        .enabled(if: geteuid() == 0))
    func lostAndFound() throws {
        let vault = try vault { writer in try writer.file("file", count: 10) }
        #expect(mkdir(vault.path + "/lost+found", 0o700) == 0)
        let outcome = try OrdinaryUser.act { try RekeyVault.rekey(vault.path) }
        #expect(outcome.isFinished && outcome.totals.problems == 0)
    }

    @Test("another user's directory that cannot be examined may be the vault's", .enabled(if: geteuid() == 0))
    func others() throws {
        let vault = try vault { writer in try writer.file("file", count: 10) }
        #expect(mkdir(vault.path + "/somebody's", 0o700) == 0)
        let outcome = try OrdinaryUser.act { try RekeyVault.rekey(vault.path) }
        #expect(!outcome.isFinished && outcome.totals.problems > 0)
        #expect(rmdir(vault.path + "/somebody's") == 0)
        let next = try OrdinaryUser.act { try RekeyVault.rekey(vault.path) }
        #expect(next.isFinished)
    }

    @Test("a file that denies access to its owner is reported, and is unchanged", arguments: [mode_t(0o200), 0])
    func closedFile(mode: mode_t) throws {
        let vault = try vault { writer in
            let file = try writer.file("file", count: 5000)
            #expect(fchmod(file.anyDescriptor.fd, mode) == 0)
            try writer.file("other", count: 10)
        }
        let old = try VerifierVault.contents(try vault.vault.backing("file"))
        let (outcome, problems) = try ClosedVault.rekey(vault.path)
        #expect(!outcome.isFinished && outcome.totals.problems == 1 && outcome.totals.denied == 1)
        #expect(outcome.totals.files == 1 && problems == ["file: Permission denied"])
        let backing = try RekeyVault.backing("file", in: vault.path)
        #expect(self.mode(of: backing) == mode)
        #expect(try VerifierVault.contents(backing) == old)
        #expect(chmod(backing, 0o400) == 0)
        #expect(try ClosedVault.rekey(vault.path).outcome.isFinished)
        #expect(self.mode(of: try RekeyVault.backing("file", in: vault.path)) == 0o400)
    }
}
