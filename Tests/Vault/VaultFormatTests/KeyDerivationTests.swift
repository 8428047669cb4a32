import Testing
import VaultCrypto
import VaultFormat

@Suite struct KeyDerivationTests {
    @Test("Keys-1: class, link and configuration keys follow the table and all differ")
    func table() throws {
        let vault = try TestVault()
        var keys: [[UInt8]] = []
        for (number, protectionClass) in zip(1..., ProtectionClass.allCases) {
            let (master, salt) = (vault.masterKey, vault.id.bytes)
            let classKey = try KeyDerivation.classKey(master: master, vault: vault.id, protectionClass).revealed
            let linkKey = try KeyDerivation.linkKey(master: master, vault: vault.id, protectionClass).revealed
            let hkdf = { (info: String) in
                try Hkdf.derive(secret: master, salt: salt, info: Array(info.utf8), count: 64).revealed
            }
            #expect(try classKey == hkdf("vaultfs 1 class \(number)"))
            #expect(try linkKey == hkdf("vaultfs 1 links \(number)"))
            keys += [classKey, linkKey]
        }
        keys.append(try KeyDerivation.configurationKey(master: vault.masterKey, vault: vault.id).revealed)
        #expect(keys.map(\.count) == Array(repeating: 64, count: 10) + [32])
        #expect(Set(keys).count == 11)
    }

    @Test("Keys-1: classes have their user-visible names")
    func names() {
        #expect(ProtectionClass.allCases.map(\.rawValue) == [1, 2, 3, 4, 5])
        #expect(
            ProtectionClass.allCases.map(\.name) == [
                "complete", "unless-open", "until-first-unlock", "none", "inbox",
            ])
        #expect(ProtectionClass.allCases.allSatisfy { ProtectionClass(name: $0.name) == $0 })
        #expect(ProtectionClass(name: "Complete") == nil)
    }

    @Test("Values-6: a vault id has one spelling")
    func vaultID() throws {
        let id = try VaultID.random()
        #expect(VaultID(hex: ascii(id.hex)) == id)
        #expect(id.bytes.count == 16 && id.hex.count == 32)
        for hex in ["", "0123", String(repeating: "A", count: 32), String(repeating: "g", count: 32), id.hex + "0"] {
            #expect(VaultID(hex: ascii(hex)) == nil)
        }
    }
}
