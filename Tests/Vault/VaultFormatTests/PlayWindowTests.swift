import Testing
import VaultCrypto

@testable import VaultFormat

/// Windows in `vaultfs.json`.
@Suite struct PlayWindowTests {
    private let test: TestConfiguration
    private let key: SecretBytes
    private let window = PlayWindow(seconds: 172_800, started: "2026-03-01T00:00:00Z", seen: "2026-03-02T00:00:00Z")

    init() throws {
        test = try TestConfiguration()
        key = try KeyDerivation.configurationKey(master: test.masterKey, vault: test.configuration.vault)
    }

    private func setting(_ window: PlayWindow?, in configuration: VaultConfiguration) throws -> VaultConfiguration {
        let bytes = try configuration.settingWindow(of: 2, to: window, configurationKey: key)
            .checkedBytes(configurationKey: key)
        return try VaultConfiguration.parse(bytes)
    }

    /// The text with `window` in slot 2, changed.
    private func text(replacing old: String, with new: String) throws -> [UInt8] {
        let text = VaultFormatTests.text(try setting(window, in: test.configuration).serialized())
        #expect(text.contains(old))
        return ascii(text.replacing(old, with: new))
    }

    @Test("Leases-3: a window can be added and removed, and the feature with it; every slot still opens")
    func feature() throws {
        #expect(test.configuration.features == [])
        let unstarted = try setting(try PlayWindow(seconds: 60), in: test.configuration)
        let started = try setting(window, in: unstarted)
        let without = try setting(nil, in: started)
        #expect(started.slot(2)?.window == window && unstarted.slot(2)?.window?.started == nil)
        #expect([unstarted, started, without].map(\.features) == [["leases"], ["leases"], []])
        #expect(without.slots == test.configuration.slots && without.generation == 4)
        for configuration in [unstarted, started, without] {
            for (secret, id) in [(test.passphrase, 1), (test.keyfile, 2), (test.recovery, 3)] {
                let opened = try #require(try configuration.unwrapMasterKey(with: secret))
                #expect(opened.slot.id == id && opened.masterKey.hasSameBytes(as: test.masterKey))
            }
        }
    }

    @Test("Leases-3: a slot that is made with a window, and one made beside it, open")
    func made() throws {
        let secrets = try (1...2).map { try SlotSecret.keyfile([UInt8](repeating: $0, count: 32)) }
        var configuration = test.configuration
        for (secret, window) in zip(secrets, [window, nil]) {
            let change = try configuration.adding(
                SlotRequest(secret: secret, window: window), created: "2026-03-01T00:00:00Z", masterKey: test.masterKey)
            configuration = try VaultConfiguration.parse(change.checkedBytes(masterKey: test.masterKey))
        }
        #expect(configuration.features == ["leases"])
        #expect(try secrets.map { try configuration.unwrapMasterKey(with: $0)?.slot.id } == [4, 5])
        configuration = try configuration.removingSlots([4], masterKey: test.masterKey).configuration
        #expect(configuration.features == [])
        #expect(try configuration.unwrapMasterKey(with: secrets[1])?.slot.id == 5)
    }

    @Test("Leases-3: null is the same as no window, beside a slot that has one")
    func spelling() throws {
        let bytes = try text(replacing: "\"id\": 1,", with: "\"id\": 1, \"window\": null,")
        let parsed = try VaultConfiguration.parse(bytes)
        #expect(parsed.slot(1)?.window == nil && parsed.authenticates(configurationKey: key))
    }

    @Test(
        "Leases-3: windows and feature are refused if they do not fit together or have another form",
        arguments: [
            ("\"features\": [\"leases\"]", "\"features\": []"),
            ("\"features\": [\"leases\"]", "\"features\": [\"leases\", \"leases\"]"),
            ("\"window\": {", "\"window\": null, \"x\": {"), ("\"window\": {", "\"window\": {}, \"x\": {"),
            ("\"window\": {", "\"window\": null, \"window\": {"), ("\"window\": {", "\"Window\": {"),
            ("\"seconds\": 172800", "\"seconds\": 0"), ("\"seconds\": 172800", "\"seconds\": 4294967296"),
            ("\"seconds\": 172800", "\"seconds\": 18446744073709551615"), ("\"seconds\": 172800", "\"seconds\": -1"),
            ("\"seconds\": 172800", "\"seconds\": \"172800\""), ("\"seconds\": 172800, ", ""),
            ("\"seconds\": 172800", "\"seconds\": 172800, \"seconds\": 172800"),
            ("\"seconds\": 172800", "\"seconds\": 172800, \"left\": 1"),
            ("\"started\": \"2026-03-01T00:00:00Z\"", "\"started\": null"),
            ("\"seen\": \"2026-03-02T00:00:00Z\"", "\"seen\": null"),
            ("\"seen\": \"2026-03-02T00:00:00Z\"", "\"seen\": \"2026-02-28T23:59:59Z\""),
            (", \"seen\": \"2026-03-02T00:00:00Z\"", ""), ("2026-03-02T00:00:00Z", "2026-03-32T00:00:00Z"),
        ])
    func refusals(old: String, new: String) throws {
        let bytes = try text(replacing: old, with: new)
        #expect(formatError { _ = try VaultConfiguration.parse(bytes) }?.kind == .malformed)
    }

    @Test("the feature without a window is refused, and one beside it is of a newer version")
    func featureWithoutWindowIsRefused() throws {
        let alone = try #require(test.text(replacing: "\"features\": []", with: "\"features\": [\"leases\"]"))
        #expect(formatError { _ = try VaultConfiguration.parse(alone) }?.kind == .malformed)
        let more = try text(replacing: "[\"leases\"]", with: "[\"leases\", \"later\"]")
        let error = formatError { _ = try VaultConfiguration.parse(more) }
        #expect(error?.kind == .newerVersion && error?.reason.contains("'later'") == true)
    }

    @Test(
        "Mac-2: a changed window fails at the MAC",
        arguments: [
            ("172800", "172801"), ("2026-03-01T00:00:00Z\", \"seen", "2026-03-01T00:00:01Z\", \"seen"),
            ("2026-03-02T00:00:00Z", "2026-03-02T00:00:01Z"),
            (
                "\"started\": \"2026-03-01T00:00:00Z\", \"seen\": \"2026-03-02T00:00:00Z\"",
                "\"started\": null, \"seen\": null"
            ),
        ])
    func macFails(old: String, new: String) throws {
        let parsed = try VaultConfiguration.parse(try text(replacing: old, with: new))
        #expect(formatError { _ = try parsed.unwrapMasterKey(with: test.keyfile) }?.kind == .doesNotAuthenticate)
        #expect(!parsed.authenticates(configurationKey: key))
    }

    @Test("a slot that is not there gets no window, and a window has bounds")
    func slotThatIsNotThere() throws {
        #expect(
            formatError {
                _ = try test.configuration.settingWindow(of: 9, to: window, configurationKey: key)
            }?.kind == .invalidValue)
        for seconds in [0, -1, 0x1_0000_0000] {
            #expect(formatError { _ = try PlayWindow(seconds: seconds) }?.kind == .invalidValue)
        }
    }
}
