package import VaultCrypto

/// What a directory secret yields (FileFormat, Directory record). Any thread.
package final class DirectoryKeys: Sendable {
    /// The cipher of the names in the directory.
    package let nameCipher: SivCipher
    /// The 64-byte SIV key of the directory's own extended attributes.
    package let attributeKey: SecretBytes

    init(secret: SecretBytes, vault: VaultID) throws(FormatError) {
        let keys = try KeyDerivation.derive(secret, vault, info: "vaultfs 1 directory", count: 128)
        let nameKey = keys.subrange(0..<64)
        nameCipher = try cryptography("directory record: name key") { () throws(CryptoError) in
            try SivCipher(key: nameKey)
        }
        attributeKey = keys.subrange(64..<128)
    }

    /// Wipes the keys in place, for good; whoever uses them gets `keyForgotten`.
    package func forget() {
        nameCipher.forget()
        attributeKey.forget()
    }
}
