package import VaultCrypto

/// A configuration with changed slots, not yet written.
package struct SlotChange: Sendable {
    package let configuration: VaultConfiguration
    /// The slot that was made, if one was.
    package let made: KeySlot?
    /// The secret that opens it.
    let secret: SlotSecret?

    /// The bytes of the new `vaultfs.json`, after checking what a reader will get: the configuration, whose MAC
    /// verifies, and in which the new secret opens the master key. Takes as long as its key derivation.
    ///
    /// Throws `invalidValue` if the file would be larger than the format allows.
    package func checkedBytes(masterKey: SecretBytes) throws(FormatError) -> [UInt8] {
        let bytes = try checkedBytes(
            configurationKey: KeyDerivation.configurationKey(master: masterKey, vault: configuration.vault))
        guard let made, let secret else { return bytes }
        guard let opened = try configuration.slot(made.id)?.open(with: secret, head: configuration.headLines),
            opened.hasSameBytes(as: masterKey)
        else { throw FormatError(.cryptography, "slot \(made.id): the new secret does not open it") }
        return bytes
    }

    /// The same, without checking that the secret opens the slot.
    package func checkedBytes(configurationKey: SecretBytes) throws(FormatError) -> [UInt8] {
        let bytes = configuration.serialized()
        guard bytes.count <= VaultConfiguration.maximumSize else {
            throw FormatError(.invalidValue, "vaultfs.json would have over \(VaultConfiguration.maximumSize) bytes")
        }
        let reread = try VaultConfiguration.parse(bytes)
        guard reread == configuration, reread.authenticates(configurationKey: configurationKey) else {
            throw FormatError(.cryptography, "vaultfs.json: what was to be written does not verify")
        }
        return bytes
    }
}
