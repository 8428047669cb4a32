import Foundation
import Synchronization
import Testing

@testable import VaultCare
@testable import VaultStore
@testable import VaultStoreTests

/// Keys of another vault, under which everything looks damaged. A repair must not use them.
@Suite struct VerifierKeysTests {
    /// Returns the verifier's statement about the keys.
    private func misfit(_ path: String) throws -> String? {
        let (directory, masterKey, _) = try RekeyVault.open(path)
        let verifier = try Verifier(directory: directory, masterKey: masterKey)
        _ = try verifier.run(onFinding: { _ in })
        return verifier.keys.misfit
    }

    @Test("Store-32: a vaultfs.json from before a rekey, which is finished or halfway", arguments: [true, false])
    func older(_ isFinished: Bool) throws {
        let vault = try RekeyVault()
        let json = URL(filePath: vault.path + "/vaultfs.json")
        let older = try Data(contentsOf: json)
        #expect(try misfit(vault.path) == nil)
        if isFinished {
            try RekeyVault.rekey(vault.path)
        } else {
            let replaced = Mutex(0)
            let outcome = try RekeyVault.rekey(
                vault.path, threads: 1,
                before: { point in if point == .replaceEntry { replaced.withLock { $0 += 1 } } },
                isStopped: { replaced.withLock { $0 > 1 } })
            #expect(!outcome.isFinished)
        }
        #expect(try misfit(vault.path) == nil)
        let newer = try Data(contentsOf: json)
        try older.write(to: json)
        #expect(try misfit(vault.path) == "parts of the vault were rekeyed after this vaultfs.json was written")
        try newer.write(to: json)
        #expect(try misfit(vault.path) == nil)
    }

    @Test("another vault's vaultfs.json; a single damaged record is damage")
    func another() throws {
        let vault = try RekeyVault()
        let other = try RekeyVault()
        try vault.vault.edit(vault.path + "/vaultfs.dir") { $0[30] ^= 1 }
        #expect(try misfit(vault.path) == nil)
        let json = URL(filePath: vault.path + "/vaultfs.json")
        try Data(contentsOf: URL(filePath: other.path + "/vaultfs.json")).write(to: json)
        #expect(try misfit(vault.path) == "nothing in the vault opens with the keys of this vaultfs.json")
    }
}
