import Testing
import VaultCrypto

@testable import VaultFormat

/// Key epochs in `vaultfs.json` and in objects (FileFormat, Epochs).
@Suite struct KeyEpochTests {
    private let made: TestConfiguration
    private let newMaster: SecretBytes
    private let begun: VaultConfiguration

    init() throws {
        made = try TestConfiguration()
        newMaster = try SecretBytes.random(count: 32)
        begun = try Self.begin(made.configuration, made, newMaster)
    }

    private static func begin(
        _ configuration: VaultConfiguration, _ made: TestConfiguration, _ newMaster: SecretBytes,
        _ master: SecretBytes? = nil
    ) throws -> VaultConfiguration {
        let slot = try #require(configuration.slots.first { $0.kind == .passphrase })
        let change = try configuration.beginningEpoch(
            keeping: slot, secret: made.passphrase, created: "2026-03-01T00:00:00Z",
            masterKey: master ?? made.masterKey, newMaster: newMaster)
        return try VaultConfiguration.parse(change.checkedBytes(masterKey: newMaster))
    }

    private func parse(_ configuration: VaultConfiguration, _ old: String, _ new: String) throws -> VaultConfiguration {
        let whole = text(configuration.serialized())
        let changed = whole.replacing(old, with: new)
        try #require(changed != whole)
        return try VaultConfiguration.parse(ascii(changed))
    }

    @Test("Epochs-5: a rekey begins with a new master key, and encrypts the old one and the one slot anew")
    func beginning() throws {
        #expect(begun.features == ["epochs"] && begun.epochs == KeyEpochs(current: 1, previous: 0) && begun.isRekeying)
        #expect(begun.generation == made.configuration.generation + 1)
        #expect(
            begun.slots.count == 1 && begun.slots[0].id == 1 && begun.slots[0].kdf != made.configuration.slots[0].kdf)
        let opened = try #require(try begun.unwrapMasterKey(with: made.passphrase))
        #expect(opened.masterKey.hasSameBytes(as: newMaster) && !newMaster.hasSameBytes(as: made.masterKey))
        #expect(try begun.unwrapMasterKey(with: made.keyfile) == nil)
        #expect(try begun.previousMasterKey(masterKey: newMaster)?.hasSameBytes(as: made.masterKey) == true)
        #expect(throws: FormatError.self) { try begun.previousMasterKey(masterKey: made.masterKey) }
        #expect(throws: FormatError.self) { try Self.begin(begun, made, newMaster, newMaster) }
        let ended = try VaultConfiguration.parse(
            begun.finishingEpoch(masterKey: newMaster).checkedBytes(masterKey: newMaster))
        #expect(ended.epochs == KeyEpochs(current: 1, previous: nil) && !ended.isRekeying)
        #expect(try ended.previousMasterKey(masterKey: newMaster) == nil && ended.slots == begun.slots)
        #expect(throws: FormatError.self) { try ended.finishingEpoch(masterKey: newMaster) }
    }

    @Test(
        "Epochs-5: a change of slots during an unfinished rekey keeps both members, and a window can be added and removed"
    )
    func slotsMeanwhile() throws {
        let request = try SlotRequest(secret: made.keyfile, window: PlayWindow(seconds: 60))
        let added = try begun.adding(request, created: "2026-03-02T00:00:00Z", masterKey: newMaster).configuration
        #expect(added.features == ["epochs", "leases"] && added.epoch == begun.epoch)
        let reread = try VaultConfiguration.parse(added.serialized())
        #expect(reread == added)
        for secret in [made.passphrase, made.keyfile] {
            #expect(try reread.unwrapMasterKey(with: secret)?.masterKey.hasSameBytes(as: newMaster) == true)
        }
        #expect(try added.removingSlots([2], masterKey: newMaster).configuration.epoch == begun.epoch)
    }

    @Test("Epochs-1: both members with the feature, neither without, and an epoch of 1…255")
    func members() throws {
        for epoch in ["0", "256", "-1", "1.0", "null", "\"1\""] {
            #expect(throws: FormatError.self) { try parse(begun, "\"epoch\": 1", "\"epoch\": \(epoch)") }
        }
        #expect(throws: FormatError.self) { try parse(begun, "[\"epochs\"]", "[]") }
        #expect(throws: FormatError.self) { try parse(begun, "[\"epochs\"]", "[\"epochs\", \"epochs\"]") }
        #expect(throws: FormatError.self) { try parse(begun, "\"epoch\": 1,", "") }
        #expect(throws: FormatError.self) {
            try parse(made.configuration, "\"features\": []", "\"features\": [\"epochs\"]")
        }
        #expect(throws: FormatError.self) {
            try parse(made.configuration, "\"generation\": 1", "\"generation\": 1, \"epoch\": 1, \"previous\": null")
        }
        let previous = KdfParameters.text(try #require(begun.epoch?.previous))
        #expect(throws: FormatError.self) { try parse(begun, previous, previous + "AAAA") }
        #expect(formatError { _ = try parse(begun, "\"epochs\"", "\"epochz\"") }?.kind == .newerVersion)
    }

    @Test("Epochs-1, Mac-2: the MAC covers the epoch and the previous key, and the slots cover the feature too")
    func authenticated() throws {
        let previous = KdfParameters.text(try #require(begun.epoch?.previous))
        for (old, new) in [("\"epoch\": 1", "\"epoch\": 2"), ("\"\(previous)\"", "null")] {
            let changed = try parse(begun, old, new)
            #expect(throws: FormatError.self) { try changed.unwrapMasterKey(with: made.passphrase) }
        }
        // A reader of version 1 refuses this unknown feature. Without the feature in the head, the slot would not open.
        let slot = try #require(begun.slots.first)
        let bare = VaultConfiguration.headLines(vault: begun.vault, chunkSize: 4096, features: [])
        #expect(try slot.open(with: made.passphrase, head: bare) == nil)
        #expect(try slot.open(with: made.passphrase, head: begun.headLines) != nil)
    }

    @Test("a vault can be rekeyed 255 times, and no more")
    func lastEpoch() throws {
        var (configuration, master) = (made.configuration, made.masterKey)
        for number in 1...255 {
            let next = try SecretBytes.random(count: 32)
            let slot = try #require(configuration.slots.first { $0.kind == .keyfile || $0.kind == .recovery })
            let secret = slot.kind == .keyfile ? made.keyfile : made.recovery
            configuration = try configuration.beginningEpoch(
                keeping: slot, secret: secret, created: "2026-03-01T00:00:00Z", masterKey: master, newMaster: next
            ).configuration
            #expect(configuration.epochs == KeyEpochs(current: UInt8(number), previous: UInt8(number - 1)))
            configuration = try configuration.finishingEpoch(masterKey: next).configuration
            master = next
        }
        #expect(throws: FormatError.self) {
            try configuration.beginningEpoch(
                keeping: configuration.slots[0], secret: made.keyfile, created: "2026-03-01T00:00:00Z",
                masterKey: master, newMaster: master)
        }
    }

    @Test("Epochs-2: the epoch of a header or record must exist in the vault, and the wrap authenticates it")
    func objects() throws {
        let vault = try TestVault()
        let cipher = try vault.classCipher()
        let (header, keys) = try FileHeader.make(.complete, epoch: 7, classCipher: cipher, vault: vault.id)
        let bytes = try header.serialized(keys: keys)
        let record = try DirectoryRecord.make(
            .complete, epoch: 7, isRoot: true, classCipher: cipher, vault: vault.id
        ).bytes
        #expect(bytes[7] == 7 && record[7] == 7)
        for epochs in [
            KeyEpochs(current: 7, previous: nil), .init(current: 8, previous: 7), .init(current: 7, previous: 6),
        ] {
            let found = try FileHeader.parse(bytes, epochs: epochs)
            #expect(found.epoch == 7)
            _ = try found.unwrapKeys(classCipher: cipher, vault: vault.id)
            let foundRecord = try DirectoryRecord.parse(record, epochs: epochs)
            #expect(foundRecord.epoch == 7)
            _ = try foundRecord.unwrapKeys(classCipher: cipher, vault: vault.id)
        }
        for epochs in [KeyEpochs.first, .init(current: 8, previous: nil), .init(current: 9, previous: 8)] {
            #expect(throws: FormatError.self) { try FileHeader.parse(bytes, epochs: epochs) }
            #expect(throws: FormatError.self) { try DirectoryRecord.parse(record, epochs: epochs) }
        }
        var (other, otherRecord) = (bytes, record)
        (other[7], otherRecord[7]) = (8, 8)
        let epochs = KeyEpochs(current: 8, previous: 7)
        let changed = try FileHeader.parse(other, epochs: epochs)
        #expect(throws: FormatError.self) { try changed.unwrapKeys(classCipher: cipher, vault: vault.id) }
        #expect(throws: FormatError.self) {
            try DirectoryRecord.parse(otherRecord, epochs: epochs).unwrapKeys(classCipher: cipher, vault: vault.id)
        }
    }

    @Test("Epochs-3: a change of class keeps the epoch")
    func classChange() throws {
        let vault = try TestVault()
        let cipher = try vault.classCipher()
        let (header, keys) = try FileHeader.make(.complete, epoch: 3, classCipher: cipher, vault: vault.id)
        let changed = try header.rewrapped(as: .none, from: cipher, to: try vault.classCipher(.none))
        #expect(try changed.epoch == 3 && changed.serialized(keys: keys)[7] == 3)
        let record = try DirectoryRecord.make(
            .complete, epoch: 3, isRoot: false, classCipher: cipher, vault: vault.id
        ).bytes
        let epochs = KeyEpochs(current: 4, previous: 3)
        let rewrapped = try DirectoryRecord.parse(record, epochs: epochs).rewrapped(
            as: .none, from: cipher, to: try vault.classCipher(.none))
        #expect(rewrapped[7] == 3)
        _ = try DirectoryRecord.parse(rewrapped, epochs: epochs).unwrapKeys(
            classCipher: try vault.classCipher(.none), vault: vault.id)
    }

    /// Epochs-4 concerns the key ring: see the tests of rekeying.
    @Test("Keys-1, Epochs-4: a link of one epoch does not open under the key of another")
    func links() throws {
        let (old, new) = (try TestVault(), try TestVault())
        let cipher = try old.linkCipher()
        let stored = try LinkTarget.encode(ascii("target"), class: .complete, linkCipher: cipher)
        #expect(try LinkTarget.decode(stored, linkCipher: cipher) == ascii("target"))
        #expect(throws: FormatError.self) { try LinkTarget.decode(stored, linkCipher: new.linkCipher()) }
    }
}
