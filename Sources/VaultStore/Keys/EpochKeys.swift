internal import VaultCrypto
internal import VaultFormat

/// The ciphers of one key epoch: for each protection class, the one that wraps its secrets and the one of its links. Any
/// thread.
struct EpochKeys: Sendable {
    let epoch: UInt8
    private let vault: VaultID
    /// By raw value of the class, from 1.
    private let classCiphers: [SivCipher]
    private let linkCiphers: [SivCipher]

    /// Derives them from the epoch's master key (FileFormat, Keys).
    init(epoch: UInt8, masterKey: SecretBytes, vault: VaultID) throws(FormatError) {
        self.epoch = epoch
        self.vault = vault
        var classCiphers: [SivCipher] = []
        var linkCiphers: [SivCipher] = []
        for (index, protectionClass) in ProtectionClass.allCases.enumerated() {
            precondition(Int(protectionClass.rawValue) == index + 1, "internal error: order of protection classes")
            classCiphers.append(
                try .under(KeyDerivation.classKey(master: masterKey, vault: vault, protectionClass)))
            linkCiphers.append(try .under(KeyDerivation.linkKey(master: masterKey, vault: vault, protectionClass)))
        }
        self.classCiphers = classCiphers
        self.linkCiphers = linkCiphers
    }

    func classCipher(_ protectionClass: ProtectionClass) -> SivCipher {
        classCiphers[Int(protectionClass.rawValue) - 1]
    }

    func linkCipher(_ protectionClass: ProtectionClass) -> SivCipher {
        linkCiphers[Int(protectionClass.rawValue) - 1]
    }

    /// Wipes the keys of these classes.
    func forget(_ classes: [ProtectionClass]) {
        for protectionClass in classes {
            classCipher(protectionClass).forget()
            linkCipher(protectionClass).forget()
        }
    }

    /// Derives the keys of these classes again.
    func restore(_ classes: [ProtectionClass], masterKey: SecretBytes) throws(FormatError) {
        for protectionClass in classes {
            try Self.rekey(
                classCipher(protectionClass),
                KeyDerivation.classKey(master: masterKey, vault: vault, protectionClass))
            try Self.rekey(
                linkCipher(protectionClass), KeyDerivation.linkKey(master: masterKey, vault: vault, protectionClass))
        }
    }

    private static func rekey(_ cipher: SivCipher, _ key: SecretBytes) throws(FormatError) {
        do throws(CryptoError) {
            try cipher.rekey(key)
        } catch {
            throw FormatError(.cryptography, "cannot set up AES-SIV: \(error)")
        }
    }
}

extension SivCipher {
    static func under(_ key: SecretBytes) throws(FormatError) -> SivCipher {
        do throws(CryptoError) {
            return try SivCipher(key: key)
        } catch {
            throw FormatError(.cryptography, "cannot set up AES-SIV: \(error)")
        }
    }
}
