internal import VaultCrypto
internal import VaultFormat

/// The ciphers of one key epoch: for each protection class, one that wraps its secrets and one for its links. Any thread.
struct EpochKeys: Sendable {
    let epoch: UInt8
    private let vault: VaultID
    /// By raw value of the class, from 1.
    private let classCiphers: [SivCipher]
    private let linkCiphers: [SivCipher]

    /// Derives the ciphers from the epoch's master key (FileFormat, Keys).
    init(epoch: UInt8, masterKey: SecretBytes, vault: VaultID) throws(FormatError) {
        self.epoch = epoch
        self.vault = vault
        precondition(ProtectionClass.allCases.map(\.rawValue) == [1, 2, 3, 4], "internal error: order of classes")
        classCiphers = try ProtectionClass.allCases.map { (protectionClass) throws(FormatError) in
            try .under(KeyDerivation.classKey(master: masterKey, vault: vault, protectionClass))
        }
        linkCiphers = try ProtectionClass.allCases.map { (protectionClass) throws(FormatError) in
            try .under(KeyDerivation.linkKey(master: masterKey, vault: vault, protectionClass))
        }
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
            let classKey = try KeyDerivation.classKey(master: masterKey, vault: vault, protectionClass)
            let linkKey = try KeyDerivation.linkKey(master: masterKey, vault: vault, protectionClass)
            try cryptography("class key", classCipher(protectionClass).rekey(classKey))
            try cryptography("link key", linkCipher(protectionClass).rekey(linkKey))
        }
    }
}

extension SivCipher {
    /// A cipher under `key`.
    static func under(_ key: SecretBytes) throws(FormatError) -> SivCipher {
        try cryptography("AES-SIV key", SivCipher(key: key))
    }
}
