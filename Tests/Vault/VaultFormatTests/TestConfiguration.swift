import VaultCrypto
import VaultFormat

/// A configuration with a slot of each kind, the secrets to open them, and ways to change its text.
struct TestConfiguration {
    let masterKey: SecretBytes
    let passphrase: SlotSecret
    let keyfile: SlotSecret
    let recovery: SlotSecret
    let configuration: VaultConfiguration

    /// Makes the configuration, with `label` on the keyfile slot.
    init(label: String = "usb stick", chunkSize: Int = 4096) throws {
        masterKey = try SecretBytes.random(count: 32)
        passphrase = try SlotSecret.passphrase(ascii("correct horse\n"))
        keyfile = try SlotSecret.keyfile(try SecureRandom.bytes(count: 100))
        recovery = try SlotSecret(kind: .recovery, bytes: try SecretBytes.random(count: 32))
        let requests = [
            SlotRequest(secret: passphrase, cost: try ScryptCost(logN: 10, r: 8, p: 1)),
            SlotRequest(secret: keyfile, label: label, expires: "2030-01-31T23:59:59Z"),
            SlotRequest(secret: recovery),
        ]
        configuration = try VaultConfiguration.make(
            chunkSize: chunkSize, masterKey: masterKey, slots: requests, created: "2026-02-28T00:00:00Z")
    }

    /// Returns the text of the configuration with the first `old` replaced by `new`. Nil without an `old`.
    func text(replacing old: String, with new: String) -> [UInt8]? {
        let bytes = configuration.serialized()
        let pattern = ascii(old)
        guard let start = bytes.indices.first(where: { bytes[$0...].starts(with: pattern) }) else { return nil }
        return Array(bytes[..<start]) + ascii(new) + Array(bytes[(start + pattern.count)...])
    }
}
