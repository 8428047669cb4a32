import Testing
import VaultCrypto
import VaultFormat

@Suite struct SlotChangeTests {
    private static let created = "2026-11-21T00:00:00Z"

    private let test: TestConfiguration
    private let keyfile: SlotSecret

    init() throws {
        test = try TestConfiguration()
        keyfile = try SlotSecret.keyfile(try SecureRandom.bytes(count: 40))
    }

    /// Parses the bytes to be written, as a reader will.
    private func reread(_ change: ConfigurationChange) throws -> VaultConfiguration {
        try VaultConfiguration.parse(change.checkedBytes(masterKey: test.masterKey))
    }

    private func add(_ request: SlotRequest, to configuration: VaultConfiguration) throws -> ConfigurationChange {
        try configuration.adding(request, created: Self.created, masterKey: test.masterKey)
    }

    @Test("a slot is added: its secret opens the master key, and so do the others'")
    func slotIsAdded() throws {
        let request = SlotRequest(secret: keyfile, label: "safe\u{7}", expires: "2031-01-01T00:00:00Z")
        let change = try add(request, to: test.configuration)
        let configuration = try reread(change)
        #expect(configuration.generation == 2)
        #expect(configuration.slots.prefix(3) == test.configuration.slots[...])
        #expect(configuration.slot(4) == change.made)
        #expect(change.made?.label == "safe\u{7}" && change.made?.expires == "2031-01-01T00:00:00Z")
        #expect(change.made?.created == Self.created)
        for (secret, id) in [(test.passphrase, 1), (test.keyfile, 2), (test.recovery, 3), (keyfile, 4)] {
            let opened = try #require(try configuration.unwrapMasterKey(with: secret))
            #expect(opened.slot.id == id && opened.masterKey.hasSameBytes(as: test.masterKey))
        }
    }

    @Test("Store-22: a slot is replaced: the old secret opens nothing, the new one the same id")
    func slotIsReplaced() throws {
        let change = try test.configuration.replacingSlot(
            1, by: SlotRequest(secret: keyfile, label: "other"), created: Self.created, masterKey: test.masterKey)
        let configuration = try reread(change)
        #expect(configuration.generation == 2)
        #expect(configuration.slots.map(\.id) == [1, 2, 3])
        #expect(configuration.slots.dropFirst() == test.configuration.slots.dropFirst())
        #expect(try configuration.unwrapMasterKey(with: test.passphrase) == nil)
        #expect(try configuration.unwrapMasterKey(with: keyfile)?.slot == configuration.slot(1))
        #expect(configuration.slot(1)?.label == "other")
    }

    @Test("Slots-3: a slot that is encrypted again gets a new salt, even for the same secret")
    func salt() throws {
        let change = try test.configuration.replacingSlot(
            2, by: SlotRequest(secret: test.keyfile), created: Self.created, masterKey: test.masterKey)
        #expect(change.made?.kdf != test.configuration.slot(2)?.kdf)
        #expect(try reread(change).unwrapMasterKey(with: test.keyfile) != nil)
    }

    @Test("slots are removed")
    func slotsAreRemoved() throws {
        let change = try test.configuration.removingSlots([1, 3], masterKey: test.masterKey)
        let configuration = try reread(change)
        #expect(configuration.slots == [test.configuration.slots[1]])
        #expect(configuration.generation == 2)
        #expect(try configuration.unwrapMasterKey(with: test.passphrase) == nil)
        #expect(try configuration.unwrapMasterKey(with: test.keyfile) != nil)
    }

    @Test("Values-3: no change leaves a vault without slots, or creates more than 64")
    func slotCount() throws {
        let none = formatError { _ = try test.configuration.removingSlots([1, 2, 3], masterKey: test.masterKey) }
        #expect(none?.kind == .invalidValue)
        let secrets = try (0..<64).map { try SlotSecret.keyfile([UInt8](repeating: $0, count: 32)) }
        let full = try VaultConfiguration.make(
            chunkSize: 4096, masterKey: test.masterKey, slots: secrets.map { SlotRequest(secret: $0) },
            created: Self.created)
        #expect(formatError { _ = try add(SlotRequest(secret: keyfile), to: full) }?.kind == .invalidValue)
        _ = try reread(
            full.replacingSlot(
                64, by: SlotRequest(secret: keyfile), created: Self.created, masterKey: test.masterKey))
    }

    @Test("Store-22: all slots removed: one is left, which no secret of before opens")
    func allSlotsRemoved() throws {
        let configuration = try reread(
            test.configuration.removingAllSlots(created: Self.created, masterKey: test.masterKey))
        #expect(configuration.slots.map(\.id) == [4])
        for secret in [test.passphrase, test.keyfile, test.recovery] {
            #expect(try configuration.unwrapMasterKey(with: secret) == nil)
        }
    }

    @Test("Store-22: the id of a slot is not given twice")
    func idOfSlot() throws {
        let two = try add(SlotRequest(secret: keyfile), to: test.configuration).configuration
        let one = try two.removingSlots([2], masterKey: test.masterKey).configuration
        #expect(try add(SlotRequest(secret: test.recovery), to: one).made?.id == 5)
    }

    @Test("an id that is the largest there is")
    func idThatIsLargestThere() throws {
        let text = try #require(test.text(replacing: "\"id\": 3", with: "\"id\": \(Int.max)"))
        #expect(try add(SlotRequest(secret: keyfile), to: VaultConfiguration.parse(text)).made?.id == 3)
    }

    @Test("Syntax-1: a change that would make the file larger than 1 MiB is refused")
    func size() throws {
        let long = SlotRequest(secret: keyfile, label: String(repeating: "x", count: 1 << 20))
        let change = try add(long, to: test.configuration)
        #expect(formatError { _ = try change.checkedBytes(masterKey: test.masterKey) }?.kind == .invalidValue)
    }

    @Test("Syntax-5: an invalid time is refused", arguments: ["2026-02-29T00:00:00Z", "tomorrow", ""])
    func times(time: String) throws {
        let request = SlotRequest(secret: keyfile, expires: time)
        #expect(formatError { _ = try add(request, to: test.configuration) }?.kind == .invalidValue)
    }

    @Test("Mac-2: a change made with another vault's master key is not written")
    func otherMasterKey() throws {
        let other = try SecretBytes.random(count: 32)
        let change = try test.configuration.adding(
            SlotRequest(secret: keyfile), created: Self.created, masterKey: other)
        #expect(formatError { _ = try change.checkedBytes(masterKey: test.masterKey) }?.kind == .cryptography)
    }

    @Test("of two slots with one secret, the one that has not expired is opened")
    func ofTwoSlots() throws {
        let request = SlotRequest(secret: test.keyfile)
        let configuration = try add(request, to: test.configuration).configuration
        let before = try #require(configuration.slot(2)?.expires)
        #expect(
            try configuration.unwrapMasterKey(with: test.keyfile, at: seconds("2030-01-31T23:59:58Z"))?.slot.id == 2)
        #expect(try configuration.unwrapMasterKey(with: test.keyfile, at: seconds(before))?.slot.id == 4)
        // The expired slot opens because there is no other, so the caller must check for the expiry.
        #expect(try test.configuration.unwrapMasterKey(with: test.keyfile, at: seconds(before))?.slot.id == 2)
    }
}
