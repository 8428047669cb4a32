import Control
import Testing
import VaultCrypto
import VaultFormat

@testable import vaultfs

/// Secrets for slots, without a vault.
@Suite struct SlotSecretTests {
    @Test(
        "a client's secret that no slot can have is refused, and not quoted",
        arguments: [("pin", 9), ("passphrase", 0), ("keyfile", 31), ("recovery", 33)])
    func clientSecretsOfNoSlot(kind: String, count: Int) throws {
        let bytes = Array("secret-aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa".utf8.prefix(count))
        let given = ClientSecret(kind: kind, bytes: bytes.withUnsafeBytes { SecretBytes(copying: $0) })
        let error = try #require(throws: FormatError.self) { _ = try SlotSecret(given) }
        #expect(!error.reason.contains("secret-") && !error.reason.isEmpty)
    }

    @Test("Store-22: the cost of a new slot is at least that of the others")
    func costBesideOthers() throws {
        let costly = try ScryptCost(logN: 19, r: 8, p: 1)
        #expect(ScryptCost.beside([try ScryptCost(logN: 12, r: 8, p: 1), costly]) == costly)
        #expect(ScryptCost.beside([]) == .standard)
    }
}
