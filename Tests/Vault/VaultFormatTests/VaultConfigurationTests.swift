import LinuxSystem
import Testing
import VaultCrypto
import VaultFormat

@Suite struct VaultConfigurationTests {
    let test: TestConfiguration

    init() throws { test = try TestConfiguration() }

    @Test("Slots-2: each kind of secret opens its slot, and no other slot")
    func slots() throws {
        for (secret, id) in [(test.passphrase, 1), (test.keyfile, 2), (test.recovery, 3)] {
            let opened = try #require(try test.configuration.unwrapMasterKey(with: secret))
            #expect(opened.slot.id == id && opened.slot.kind == secret.kind)
            #expect(opened.masterKey.revealed == test.masterKey.revealed)
        }
        let wrong = try SlotSecret.passphrase(ascii("correct horse\n\n"))
        #expect(try test.configuration.unwrapMasterKey(with: wrong) == nil)
        let relabelled = try SlotSecret(kind: .keyfile, bytes: test.recovery.bytes)
        #expect(try test.configuration.unwrapMasterKey(with: relabelled) == nil)
    }

    @Test("Slots-2: every slot of the secret's kind is tried")
    func severalSlots() throws {
        let secrets = try (0..<64).map { try SlotSecret.keyfile([UInt8](repeating: $0, count: 32)) }
        let configuration = try VaultConfiguration.make(
            chunkSize: 4096, masterKey: test.masterKey, slots: secrets.map { SlotRequest(secret: $0) },
            created: "2026-02-28T00:00:00Z")
        let parsed = try VaultConfiguration.parse(configuration.serialized())
        for index in [0, 1, 31, 63] {
            #expect(try parsed.unwrapMasterKey(with: secrets[index])?.slot.id == index + 1)
        }
    }

    @Test("Slots-2, Mac-1: the slot and the MAC cover the text that the specification defines")
    func specification() throws {
        let slot = test.configuration.slots[1]
        let salt = slot.kdf.salt
        #expect(slot.kdf.cost == nil)
        let head = "vaultfs 1\nvault \(test.configuration.vault.hex)\nchunk 4096\nfeatures -\n"
        let kek = try Hkdf.derive(secret: test.keyfile.bytes, salt: salt, info: Array("vaultfs 1 kek".utf8), count: 64)
        let line = "slot 2 keyfile 2030-01-31T23:59:59Z\n"
        let opened = try SivCipher(key: kek).decryptSecret(slot.sealed, associatedData: [ascii(head + line)])
        #expect(opened.revealed == test.masterKey.revealed)

        let b64u = { (bytes: [UInt8]) in text(Base64.url.encode(bytes)) }
        var message = head + "generation 1\n"
        for slot in test.configuration.slots {
            let (expires, label) = (slot.expires ?? "-", slot.label.isEmpty ? "-" : "dXNiIHN0aWNr")
            let kdf =
                if let cost = slot.kdf.cost {
                    "scrypt,\(cost.logN),\(cost.r),\(cost.p),\(b64u(slot.kdf.salt))"
                } else {
                    "hkdf-sha256,\(b64u(slot.kdf.salt))"
                }
            message +=
                "slot \(slot.id) \(slot.kind.rawValue) \(expires) 2026-02-28T00:00:00Z \(label) \(kdf) \(b64u(slot.sealed))\n"
        }
        let key = try KeyDerivation.configurationKey(master: test.masterKey, vault: test.configuration.vault)
        #expect(try HmacSha256.authenticate(ascii(message), key: key) == test.configuration.mac)
    }

    @Test(
        "Syntax-6: written text is read back unchanged, whatever the label",
        arguments: [
            "", "-", "été 写真", "\"\\/\u{8}\u{C}\n\r\t\0\u{1F}\u{7F}\u{9B}", "𝄞 \u{10FFFF}", "\u{212A} e\u{301} \u{E9}",
            "null",
        ])
    func labels(label: String) throws {
        let test = try TestConfiguration(label: label)
        let bytes = test.configuration.serialized()
        let parsed = try VaultConfiguration.parse(bytes)
        #expect(ascii(parsed.slots[1].label) == ascii(label))
        #expect(parsed == test.configuration)
        #expect(bytes.last == UInt8(ascii: "\n"))
        #expect(parsed.serialized() == bytes)
        #expect(try parsed.unwrapMasterKey(with: test.keyfile) != nil)
        #expect(parsed.authenticates(masterKey: test.masterKey))
    }

    @Test(
        "Syntax-6: escapes are resolved before the MAC is computed",
        arguments: [#"\u0075\u0073b\u0020stick"#, #"usb\u0020stick"#, #"\u0075sb stick"#])
    func escapes(spelling: String) throws {
        let bytes = try #require(test.text(replacing: "usb stick", with: spelling))
        #expect(try VaultConfiguration.parse(bytes).unwrapMasterKey(with: test.keyfile) != nil)
    }

    @Test("Syntax-6: a surrogate pair is one character")
    func surrogatePair() throws {
        let clef = try TestConfiguration(label: "𝄞")
        for spelling in [#"\ud834\udd1e"#, #"\uD834\uDD1E"#] {
            let bytes = try #require(clef.text(replacing: "𝄞", with: spelling))
            #expect(try VaultConfiguration.parse(bytes) == clef.configuration)
        }
    }

    @Test("Slots-3: vaults differ in id, salts and sealed keys, under one master key and one secret")
    func fresh() throws {
        let make = {
            try VaultConfiguration.make(
                chunkSize: 4096, masterKey: test.masterKey, slots: [SlotRequest(secret: test.keyfile)],
                created: "2026-02-28T00:00:00Z")
        }
        let (first, second) = (try make(), try make())
        #expect(first.vault != second.vault && first.slots[0].kdf != second.slots[0].kdf)
        #expect(first.slots[0].sealed != second.slots[0].sealed && first.generation == 1)
    }

    @Test("Mac-1: another vault's master key does not authenticate")
    func otherMasterKey() throws {
        #expect(!test.configuration.authenticates(masterKey: try SecretBytes.random(count: 32)))
    }

    @Test("Values-2, Values-3, Syntax-5: make refuses values that the format cannot represent")
    func makeRefuses() throws {
        let request = SlotRequest(secret: test.keyfile)
        let make = { (chunkSize: Int, key: SecretBytes, slots: [SlotRequest], created: String) in
            _ = try VaultConfiguration.make(chunkSize: chunkSize, masterKey: key, slots: slots, created: created)
        }
        let (key, time) = (test.masterKey, "2026-02-28T00:00:00Z")
        for size in [0, -1, 2048, 5000, 2_097_152] { _ = formatError { try make(size, key, [request], time) } }
        _ = formatError { try make(4096, .copy([1, 2, 3]), [request], time) }
        _ = formatError { try make(4096, key, [], time) }
        _ = formatError { try make(4096, key, Array(repeating: request, count: 65), time) }
        for wrong in ["", "2026-02-28", "2026-02-29T00:00:00Z"] {
            _ = formatError { try make(4096, key, [request], wrong) }
        }
        let expiring = SlotRequest(secret: test.keyfile, expires: "tomorrow")
        _ = formatError { try make(4096, key, [expiring], time) }
    }
}
