import Testing
import VaultFormat

/// Changes with a well-formed result, or a possible one. Each must fail in parsing, at the slot, or at the MAC.
@Suite struct VaultConfigurationDamageTests {
    let test: TestConfiguration

    init() throws { test = try TestConfiguration() }

    /// Returns true if `bytes` still open with the keyfile.
    private func opens(_ bytes: [UInt8]) -> Bool {
        guard let parsed = try? VaultConfiguration.parse(bytes) else { return false }
        return ((try? parsed.unwrapMasterKey(with: test.keyfile)) ?? nil) != nil
    }

    @Test("Mac-2: every bit flipped is an error")
    func bitFlips() {
        let bytes = test.configuration.serialized()
        #expect(opens(bytes))
        for (bit, damaged) in bytes.withOneBitChanged {
            #expect(!opens(damaged), "bit \(bit)")
        }
    }

    @Test("Mac-2: every truncation except that of the last LF is an error")
    func truncations() {
        let bytes = test.configuration.serialized()
        for count in 0..<bytes.count - 1 { #expect(!opens(Array(bytes[..<count])), "\(count)") }
        #expect(opens(Array(bytes.dropLast())))
    }

    @Test(
        "Mac-1: a changed value that no slot authenticates fails at the MAC, which the error names",
        arguments: [
            ("\"generation\": 1", "\"generation\": 2"), ("\"label\": \"\"", "\"label\": \"-\""),
            ("usb stick", "usb  stick"),
            ("\"logN\": 10", "\"logN\": 11"), ("\"created\": \"2026-02-28", "\"created\": \"2026-02-27"),
            ("\"id\": 1", "\"id\": 4"), ("\"kind\": \"recovery\"", "\"kind\": \"keyfile\""),
            ("\"expires\": null", "\"expires\": \"2027-01-01T00:00:00Z\""),
        ])
    func macFails(old: String, new: String) throws {
        let bytes = try #require(test.text(replacing: old, with: new))
        let parsed = try VaultConfiguration.parse(bytes)
        let error = formatError { _ = try parsed.unwrapMasterKey(with: test.keyfile) }
        #expect(error == FormatError(.doesNotAuthenticate, "vaultfs.json: changed without a secret"))
        #expect(!parsed.authenticates(masterKey: test.masterKey))
    }

    @Test(
        "Slots-2: a slot does not open under another id, expiry, kind, chunk size or vault",
        arguments: [
            ("\"id\": 2", "\"id\": 4"), ("2030-01-31", "2031-01-31"),
            ("\"expires\": \"2030-01-31T23:59:59Z\"", "\"expires\": null"),
            ("\"chunkSize\": 4096", "\"chunkSize\": 8192"), ("\"kind\": \"keyfile\"", "\"kind\": \"recovery\""),
        ])
    func slotFails(old: String, new: String) throws {
        let parsed = try VaultConfiguration.parse(try #require(test.text(replacing: old, with: new)))
        #expect(try parsed.unwrapMasterKey(with: test.keyfile) == nil)
        #expect(!parsed.authenticates(masterKey: test.masterKey))
    }

    @Test("Mac-2: a slot removed, and a slot of another vault under the same master key, fail")
    func slotsExchanged() throws {
        let serialized = text(test.configuration.serialized())
        let third = try #require(serialized.ranges(of: ",\n    {").last?.lowerBound)
        let end = try #require(serialized.firstRange(of: "\n  ],\n  \"mac\"")).lowerBound
        let without = String(serialized[..<third] + serialized[end...])
        let parsed = try VaultConfiguration.parse(ascii(without))
        #expect(parsed.slots.count == 2)
        #expect(formatError { _ = try parsed.unwrapMasterKey(with: test.keyfile) }?.kind == .doesNotAuthenticate)

        let other = try VaultConfiguration.make(
            chunkSize: 4096, masterKey: test.masterKey, slots: [SlotRequest(secret: test.keyfile)],
            created: "2026-02-28T00:00:00Z")
        let grafted = text(other.serialized()).replacing(other.vault.hex, with: test.configuration.vault.hex)
        #expect(!opens(ascii(grafted)))
    }

    @Test("Mac-2: order of slots and white space have no meaning")
    func meaningless() throws {
        let serialized = text(test.configuration.serialized())
        let start = try #require(serialized.firstRange(of: "\"slots\": [\n")).upperBound
        let end = try #require(serialized.firstRange(of: "\n  ],\n  \"mac\"")).lowerBound
        let slots = String(serialized[start..<end]).replacing("},\n    {", with: "}\u{1}{").split(separator: "\u{1}")
        #expect(slots.count == 3)
        let reordered = serialized[..<start] + slots.reversed().joined(separator: ",") + serialized[end...]
        #expect(opens(ascii(String(reordered))))
        #expect(opens(ascii("\r\n\t" + serialized.replacing("\n", with: "\r\n\t ") + "\t \r\n")))
    }
}
