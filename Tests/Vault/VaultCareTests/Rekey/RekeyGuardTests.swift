import Foundation
import Glibc
import LinuxSystem
import Synchronization
import SystemPackage
import Testing
import VaultFormat

@testable import VaultCare
@testable import VaultStore
@testable import VaultStoreTests

/// Changes of the vault by others before or during a rekey, which then refuses to continue.
@Suite(.timeLimit(.minutes(60))) struct RekeyGuardTests {
    private static func fill(_ writer: VerifierVaultWriter) throws {
        try writer.file("file", count: 5000)
        try writer.file("other", count: 10, in: try writer.directory("directory"))
    }

    private let vault: RekeyVault

    init() throws { vault = try RekeyVault(Self.fill) }

    private var configurationFile: String { vault.path + "/vaultfs.json" }

    private func text() throws -> String {
        String(decoding: try VerifierVault.contents(configurationFile), as: UTF8.self)
    }

    @Test(
        "Epochs-5: a vaultfs.json that was edited while the vault was rekeyed is not signed",
        arguments: [("\"epoch\": 1", "\"epoch\": 9"), ("\"label\": \"\"", "\"label\": \"forged\"")])
    func editedConfiguration(old: String, new: String) throws {
        let file = configurationFile
        let forged = Mutex("")
        #expect(throws: VaultError.damagedConfiguration(FilePath(file), "changed without a secret")) {
            try RekeyVault.rekey(vault.path) { (point) throws(StoreError) in
                guard point == .finish else { return }
                do {
                    let text = String(decoding: try VerifierVault.contents(file), as: UTF8.self)
                    let edited = text.replacingOccurrences(of: old, with: new)
                    #expect(edited != text)
                    try Data(edited.utf8).write(to: URL(filePath: file))
                    forged.withLock { $0 = edited }
                } catch { Issue.record(error) }
            }
        }
        #expect(try text() == forged.withLock { $0 })
    }

    @Test(
        "Epochs-5: a stray vaultfs.rekey is refused before anything is changed",
        arguments: ["junk", "link", "directory"])
    func strayIntent(kind: String) throws {
        let stray = vault.path + "/vaultfs.rekey"
        switch kind {
        case "junk": try Data([1, 2, 3]).write(to: URL(filePath: stray))
        case "link": #expect(symlink("nowhere", stray) == 0)
        default: #expect(mkdir(stray, 0o755) == 0)
        }
        let before = try text()
        let (directory, masterKey, slot) = try RekeyVault.open(vault.path)
        #expect(throws: VaultError.self) {
            try RekeyStart.check(directory, keeping: slot, masterKey: masterKey, isForced: false)
        }
        #expect(throws: VaultError.self) { try RekeyVault.begin(vault.path) }
        #expect(try text() == before)
        try FileManager.default.removeItem(atPath: stray)
        #expect(try RekeyVault.rekey(vault.path).isFinished)
    }

    @Test(
        "Epochs-5: a vaultfs.json that was edited, or a slot that was changed, after the vault was opened is not signed"
    )
    func changedBeforeBegin() throws {
        let old = try RekeyVault.open(vault.path).slot
        try RekeyVault.rekey(vault.path)
        let (directory, masterKey, slot) = try RekeyVault.open(vault.path)
        let begin = { (slot: KeySlot) throws in
            _ = try RekeyStart.begin(
                directory, keeping: slot, secret: .passphrase(RekeyVault.passphrase), masterKey: masterKey)
        }
        let before = try text()
        #expect(throws: VaultError.self) { try begin(old) }
        #expect(try text() == before)
        let generation = "\"generation\": \(directory.configuration.generation)"
        let edited = before.replacingOccurrences(of: generation, with: "\"generation\": 4711")
        try #require(edited != before)
        try Data(edited.utf8).write(to: URL(filePath: configurationFile))
        #expect(throws: VaultError.self) { try begin(slot) }
        #expect(try text() == edited)
    }

    @Test("Epochs-5: a rekey does not begin with an old vaultfs.json, whose key opens nothing in the vault")
    func oldConfiguration() throws {
        let old = try text()
        try RekeyVault.rekey(vault.path)
        let new = try text()
        try Data(old.utf8).write(to: URL(filePath: configurationFile))
        #expect(throws: VaultError.self) { try RekeyVault.begin(vault.path) }
        #expect(try text() == old)
        try Data(new.utf8).write(to: URL(filePath: configurationFile))
        #expect(try RekeyVault.rekey(vault.path).isFinished)
    }

    @Test("Epochs-5: a rekey does not begin if a slot was added after its start was announced")
    func slotAdded() throws {
        let (announced, masterKey, slot) = try RekeyVault.open(vault.path)
        let secret = try SlotVault.keyfile(2)
        let added = try SlotEditor(announced, masterKey: masterKey).add(SlotRequest(secret: secret))
        let before = try text()
        let refusal = #expect(throws: VaultError.self) {
            _ = try RekeyStart.begin(
                announced, keeping: slot, secret: .passphrase(RekeyVault.passphrase), masterKey: masterKey)
        }
        #expect(refusal?.description.contains("slots were changed meanwhile; nothing was changed") == true)
        #expect(try text() == before)
        let configuration = try RekeyVault.open(vault.path).directory.configuration
        #expect(configuration.slots == [slot, added])
    }
}
