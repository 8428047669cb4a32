package import VaultCrypto

/// The keys derived from a directory secret (FileFormat, Directory record). Any thread.
package final class DirectoryKeys: Sendable {
    /// The cipher of the names in the directory.
    package let nameCipher: SivCipher
    /// The 64-byte SIV key of the directory's own extended attributes.
    package let attributeKey: SecretBytes

    init(secret: SecretBytes, vault: VaultID) throws(FormatError) {
        let (nameKey, attributeKey) = try Self.derive(secret, vault)
        nameCipher = try cryptography("directory record: name key") { () throws(CryptoError) in
            try SivCipher(key: nameKey)
        }
        self.attributeKey = attributeKey
    }

    private static func derive(
        _ secret: SecretBytes, _ vault: VaultID
    ) throws(FormatError) -> (nameKey: SecretBytes, attributeKey: SecretBytes) {
        let keys = try KeyDerivation.derive(secret, vault, info: "vaultfs 1 directory", count: 128)
        return (keys.subrange(0..<64), keys.subrange(64..<128))
    }

    package var isForgotten: Bool { attributeKey.isForgotten }

    /// Puts the keys back in place, from the secret they came from. This and ``forget()``: one thread at a time.
    func restore(secret: SecretBytes, vault: VaultID) throws(FormatError) {
        let derived = try Self.derive(secret, vault)
        try cryptography("directory record: name key") { () throws(CryptoError) in
            try nameCipher.rekey(derived.nameKey)
        }
        attributeKey.refill(from: derived.attributeKey)
    }

    /// Wipes the keys in place. Their users then get `keyForgotten`.
    package func forget() {
        nameCipher.forget()
        attributeKey.forget()
    }
}
