package import VaultCrypto

/// A configuration with changed slots, not yet written.
package struct SlotChange: Sendable {
    package let configuration: VaultConfiguration
    /// The slot that was made, if one was.
    package let made: KeySlot?
    /// The secret that opens it.
    let secret: SlotSecret?

    /// The bytes of the new `vaultfs.json`, after a look at what a reader will make of them: the configuration, whose MAC
    /// verifies, and in which the new secret opens the master key. Takes as long as its key derivation.
    ///
    /// Throws `invalidValue` where the file would be larger than the format allows.
    package func checkedBytes(masterKey: SecretBytes) throws(FormatError) -> [UInt8] {
        let bytes = configuration.serialized()
        guard bytes.count <= JSONParser.maximumSize else {
            throw FormatError(.invalidValue, "vaultfs.json would have over \(JSONParser.maximumSize) bytes")
        }
        let reread = try VaultConfiguration.parse(bytes)
        guard reread == configuration, reread.authenticates(masterKey: masterKey) else {
            throw FormatError(.cryptography, "vaultfs.json: what was to be written does not verify")
        }
        guard let made, let secret else { return bytes }
        guard let opened = try reread.slot(made.id)?.open(with: secret, head: reread.headLines),
            opened.hasSameBytes(as: masterKey)
        else { throw FormatError(.cryptography, "slot \(made.id): the new secret does not open it") }
        return bytes
    }
}
