import VaultCrypto

/// The members of `vaultfs.json` for a vault that was rekeyed (FileFormat, Epochs).
package struct KeyEpoch: Sendable, Equatable {
    /// The highest number: it is one byte of a header.
    package static let maximum: UInt8 = .max
    /// The size of `previous`: the SIV's tag and the master key.
    static let sealedSize = 48

    /// How often the vault was rekeyed: 1…255.
    package let number: UInt8
    /// The master key of the epoch before, encrypted under the current one. Nil when nothing of that epoch is left.
    package let previous: [UInt8]?

    package var epochs: KeyEpochs { KeyEpochs(current: number, previous: previous == nil ? nil : number - 1) }

    /// The lines in the text of the MAC.
    var canonicalLines: [String] {
        ["epoch \(number)", "previous \(previous.map(KdfParameters.text) ?? "-")"]
    }

    /// An epoch with `previousMaster`, the key of the epoch before, encrypted under `master`.
    static func make(
        number: UInt8, previousMaster: SecretBytes, master: SecretBytes, vault: VaultID, head: String
    ) throws(FormatError) -> KeyEpoch {
        let key = try KeyDerivation.previousKey(master: master, vault: vault)
        let line = associatedLine(number)
        let sealed = try cryptography("vaultfs.json: previous") { () throws(CryptoError) in
            try SivCipher(key: key).encryptSecret(previousMaster, associatedData: [Array((head + line).utf8)])
        }
        return KeyEpoch(number: number, previous: sealed)
    }

    /// The master key of the epoch before, if any.
    func openPrevious(master: SecretBytes, vault: VaultID, head: String) throws(FormatError) -> SecretBytes? {
        guard let previous else { return nil }
        let key = try KeyDerivation.previousKey(master: master, vault: vault)
        let line = Self.associatedLine(number)
        return try cryptography("vaultfs.json: previous") { () throws(CryptoError) in
            try SivCipher(key: key).decryptSecret(previous, associatedData: [Array((head + line).utf8)])
        }
    }

    private static func associatedLine(_ number: UInt8) -> String { "previous \(number - 1)\n" }
}
