import Foundation
import SystemPackage
import Testing
import VaultFormat

@testable import VaultStore

/// A vault with one keyfile slot, which opens quickly, and changes of its slots.
struct SlotVault {
    let directory: VaultTestDirectory
    let path: FilePath
    let secret: SlotSecret

    /// - Parameter parent: the directory for the vault, instead of a new one.
    init(in parent: FilePath? = nil, expires: String? = nil) throws {
        directory = try VaultTestDirectory()
        path = (parent ?? directory.path).appending("vault")
        secret = try Self.keyfile(1)
        try VaultCreation.create(
            at: path, chunkSize: 4096, slots: [SlotRequest(secret: secret, expires: expires)])
    }

    static func keyfile(_ byte: UInt8) throws -> SlotSecret { try .keyfile([UInt8](repeating: byte, count: 32)) }

    func open() throws -> VaultDirectory { try VaultDirectory.open(path) }

    func editor(wait: Duration = .seconds(60)) throws -> SlotEditor {
        let vault = try open()
        return SlotEditor(vault, masterKey: try vault.openSlot(with: secret).masterKey, wait: wait)
    }

    func opens(with secret: SlotSecret, at path: FilePath? = nil) throws -> Bool {
        let vault = try VaultDirectory.open(path ?? self.path)
        do throws(VaultError) {
            _ = try vault.openSlot(with: secret).masterKey
            return true
        } catch {
            guard error == .wrongSecret(vault.path, secret.kind) || error == .noSlot(vault.path, secret.kind) else {
                throw error
            }
            return false
        }
    }

    var entries: [String] { get throws { try FileManager.default.contentsOfDirectory(atPath: path.string).sorted() } }
}

@Suite(.timeLimit(.minutes(60))) struct SlotEditorTests {
    @Test("a slot that is added opens the vault, one that is removed does not")
    func slotThatIsAddedOpens() throws {
        let vault = try SlotVault()
        let passphrase = try VaultFixture.passphrase()
        let slot = try vault.editor().add(VaultFixture.slot(passphrase))
        #expect(try vault.opens(with: passphrase) && vault.opens(with: vault.secret))
        #expect(try vault.open().configuration.slot(2) == slot)
        let removal = try vault.editor().remove([2], isForced: false)
        #expect(removal.removed == [slot] && removal.remaining.map(\.id) == [1])
        #expect(try !vault.opens(with: passphrase))
        #expect(try vault.opens(with: vault.secret))
        #expect(try vault.open().configuration.generation == 3)
        #expect(try vault.entries == ["vaultfs.dir", "vaultfs.json", "vaultfs.lock"])
    }

    @Test("a slot that was changed meanwhile is not changed again")
    func slotThatWasChangedMeanwhile() throws {
        let vault = try SlotVault()
        let editor = try vault.editor()
        let seen = try #require(try vault.open().configuration.slot(1))
        try editor.change(seen, to: SlotRequest(secret: SlotVault.keyfile(2)), isForced: false)
        let after = try vault.open().configuration
        let refusal = VaultError.refused("slot 1 was changed by another program; nothing was changed")
        #expect(throws: refusal) {
            try editor.change(seen, to: SlotRequest(secret: SlotVault.keyfile(3)), isForced: false)
        }
        #expect(try vault.open().configuration == after)
    }

    @Test("the last slot that does not expire stays so, without force")
    func lastSlotThatDoes() throws {
        let vault = try SlotVault()
        let editor = try vault.editor()
        let slot = try #require(try vault.open().configuration.slot(1))
        let request = SlotRequest(secret: vault.secret, expires: "2090-01-01T00:00:00Z")
        let error = #expect(throws: VaultError.self) { try editor.change(slot, to: request, isForced: false) }
        #expect(error?.description.contains("after 2090-01-01T00:00:00Z nothing opens the vault") == true)
        #expect(try vault.open().configuration.slots == [slot])
        let forced = try editor.change(slot, to: request, isForced: true)
        #expect(forced.expires == request.expires)
        // A renewal does not weaken the vault, so it needs no force.
        let renewal = SlotRequest(secret: vault.secret, expires: "2091-01-01T00:00:00Z")
        #expect(try editor.change(forced, to: renewal, isForced: false).expires == renewal.expires)
    }

    @Test("the last slot stays, also the last that has not expired")
    func lastSlotStays() throws {
        let vault = try SlotVault()
        let editor = try vault.editor()
        try editor.add(SlotRequest(secret: SlotVault.keyfile(2), expires: "2020-01-01T00:00:00Z"))
        for ids in [[1], [1, 2]] as [Set<Int>] {
            let error = #expect(throws: VaultError.self) { try editor.remove(ids, isForced: false) }
            #expect(error?.description.contains("can never be opened again") == true)
        }
        #expect(try vault.open().configuration.slots.count == 2)
        try editor.remove([2], isForced: false)
        #expect(throws: VaultError.refused("there is no slot 2; the slots are: 1")) {
            try editor.remove([1, 2], isForced: true)
        }
        #expect(try vault.opens(with: vault.secret))
    }

    @Test("the last slot without an end gets no window, nor an expiry beside one that has a window")
    func lastSlotWithoutEndGets() throws {
        let vault = try SlotVault()
        let editor = try vault.editor()
        let (first, window) = (try #require(try vault.open().configuration.slot(1)), try PlayWindow(seconds: 60))
        try editor.add(SlotRequest(secret: SlotVault.keyfile(2), window: window))
        for change in [
            { try editor.change(first, toWindow: window, isForced: false) },
            {
                let request = SlotRequest(secret: vault.secret, expires: "2999-01-01T00:00:00Z")
                return try editor.change(first, to: request, isForced: false)
            },
        ] as [() throws -> KeySlot] {
            let error = #expect(throws: VaultError.self) { try change() }
            #expect(error?.description.contains("every slot would expire, and then nothing") == true)
        }
        #expect(try vault.open().configuration.slot(1) == first)
        #expect(try editor.change(first, toWindow: window, isForced: true).window == window)
    }

    @Test("the last slot removed by force: nothing opens the vault, and it is a vault still")
    func lastSlotRemovedByForce() throws {
        let vault = try SlotVault()
        #expect(try vault.editor().remove([1], isForced: true).remaining.isEmpty)
        #expect(try !vault.opens(with: vault.secret))
        #expect(try vault.open().configuration.slots.map(\.id) == [2])
    }

    @Test("an expired secret opens nothing, unless it has a newer slot")
    func expiredSecretOpensNothing() throws {
        let vault = try SlotVault()
        let old = try SlotVault.keyfile(2)
        try vault.editor().add(SlotRequest(secret: old, expires: "2020-01-01T00:00:00Z"))
        let expired = VaultError.slotEnded(
            "\(vault.path): slot 2 expired at 2020-01-01T00:00:00Z: renew it with 'vaultfs slot change' and another slot's "
                + "secret")
        #expect(throws: expired) {
            try vault.open().openSlot(with: old).masterKey
        }
        try vault.editor().add(SlotRequest(secret: old))
        #expect(try vault.open().openSlot(with: old).slot.id == 3)
    }

    @Test("Store-21: of many changes at once none is lost")
    func ofManyChangesAtOnce() throws {
        let vault = try SlotVault()
        let path = vault.path
        let masterKey = try vault.open().openSlot(with: vault.secret).masterKey
        try concurrently(
            (2..<26).map { byte in
                { try SlotEditor(.open(path), masterKey: masterKey).add(SlotRequest(secret: SlotVault.keyfile(byte))) }
            })
        let configuration = try vault.open().configuration
        #expect(configuration.slots.map(\.id) == Array(1...25))
        #expect(configuration.generation == 25)
        for byte in 1..<26 { #expect(try vault.opens(with: SlotVault.keyfile(UInt8(byte)))) }
        #expect(try vault.entries == ["vaultfs.dir", "vaultfs.json", "vaultfs.lock"])
    }

    @Test("while the vault is mounted slots are changed all the same")
    func whileVaultIsMountedSlots() throws {
        let vault = try SlotVault()
        let mounted = try vault.open()
        try mounted.lock(wait: .seconds(60))
        try vault.editor().add(SlotRequest(secret: SlotVault.keyfile(2)))
        #expect(try mounted.reread().configuration.slots.count == 2)
    }

    @Test("a process that waits too long for another one names it")
    func processThatWaitsTooLong() throws {
        let vault = try SlotVault()
        let lock = try ConfigurationReplacement(of: vault.open(), wait: .zero)
        let editor = try vault.editor(wait: .milliseconds(30))
        let error = #expect(throws: VaultError.self) { try editor.add(SlotRequest(secret: SlotVault.keyfile(2))) }
        guard case .inUse(vault.path.appending("vaultfs.json"), let holder?)? = error else {
            Issue.record("\(String(describing: error))")
            return
        }
        #expect(holder.processID == getpid())
        withExtendedLifetime(lock) {}
    }

    @Test("a configuration that nobody with a key wrote is not changed")
    func configurationThatNobodyWithKey() throws {
        let vault = try SlotVault()
        let editor = try vault.editor()
        let text = try VaultFixture.configurationText(vault.path)
        let tampered = text.replacingOccurrences(of: "\"label\": \"\"", with: "\"label\": \"x\"")
        try Data(tampered.utf8).write(to: URL(fileURLWithPath: vault.path.appending("vaultfs.json").string))
        let error = #expect(throws: VaultError.self) { try editor.remove([1], isForced: true) }
        #expect(error?.description.contains("vaultfs.json: damaged: ") == true)
        #expect(try VaultFixture.configurationText(vault.path) == tampered)
    }

    @Test(
        "a vaultfs.json that is no file is refused, and not waited for",
        arguments: ["link", "fifo", "directory", "nothing"])
    func vaultfsJson(what: String) throws {
        let vault = try SlotVault()
        let editor = try vault.editor()
        let path = vault.path.appending("vaultfs.json").string
        #expect(rename(path, vault.directory.path.appending("away").string) == 0)
        switch what {
        case "link": #expect(symlink(vault.directory.path.appending("away").string, path) == 0)
        case "fifo": #expect(mkfifo(path, 0o600) == 0)
        case "directory": #expect(mkdir(path, 0o700) == 0)
        default: break
        }
        #expect(throws: VaultError.self) { try editor.remove([1], isForced: true) }
    }
}
