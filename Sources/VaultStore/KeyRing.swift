package import VaultCrypto
package import VaultFormat

/// The keys of an unlocked vault: for each protection class, the cipher that wraps its secrets and the one of its links.
///
/// The master key is used to derive them and not kept. Any thread.
package final class KeyRing: Sendable {
    package let vault: VaultID
    package let layout: ChunkLayout
    /// By raw value of the class, from 1.
    private let classCiphers: [SivCipher]
    private let linkCiphers: [SivCipher]

    /// Derives the keys of the vault of `configuration` (FileFormat, Keys).
    /// - Throws: `format`, when libcrypto fails.
    package init(masterKey: SecretBytes, configuration: VaultConfiguration) throws(VaultError) {
        vault = configuration.vault
        layout = ChunkLayout(chunkSize: configuration.chunkSize)
        var classCiphers: [SivCipher] = []
        var linkCiphers: [SivCipher] = []
        do throws(FormatError) {
            for (index, protectionClass) in ProtectionClass.allCases.enumerated() {
                precondition(Int(protectionClass.rawValue) == index + 1, "internal error: order of protection classes")
                classCiphers.append(
                    try Self.cipher(KeyDerivation.classKey(master: masterKey, vault: vault, protectionClass)))
                linkCiphers.append(
                    try Self.cipher(KeyDerivation.linkKey(master: masterKey, vault: vault, protectionClass)))
            }
        } catch {
            throw .format(error)
        }
        self.classCiphers = classCiphers
        self.linkCiphers = linkCiphers
    }

    /// The cipher that wraps file and directory secrets of the class.
    package func classCipher(_ protectionClass: ProtectionClass) -> SivCipher {
        classCiphers[Int(protectionClass.rawValue) - 1]
    }

    /// The cipher of the symbolic links of the class.
    package func linkCipher(_ protectionClass: ProtectionClass) -> SivCipher {
        linkCiphers[Int(protectionClass.rawValue) - 1]
    }

    private static func cipher(_ key: SecretBytes) throws(FormatError) -> SivCipher {
        do throws(CryptoError) {
            return try SivCipher(key: key)
        } catch {
            throw FormatError(.cryptography, "cannot set up AES-SIV: \(error)")
        }
    }
}
