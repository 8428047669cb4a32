package import BackingStore
internal import CLinux
internal import Glibc
internal import Synchronization
internal import SystemPackage
package import VaultCrypto
package import VaultFormat

/// The keys of a vault: for each protection class, the cipher that wraps its secrets and the one of its links.
///
/// The master key is used to derive them and not kept. Any thread.
package final class KeyRing: Sendable {
    package let vault: VaultID
    package let layout: ChunkLayout
    /// By raw value of the class, from 1.
    private let classCiphers: [SivCipher]
    private let linkCiphers: [SivCipher]
    /// The key of the MAC of `vaultfs.json`, with which a mount sees that its slot was renewed, and notes the time in a play
    /// window. Forgotten with the others.
    package let configurationKey: SecretBytes
    /// What the master key is known by: a value that only a key of this vault gives.
    private let fingerprint: [UInt8]
    /// True from before the keys that must not outlive a lock are wiped until they are all back.
    private let isForgetting = Atomic<Bool>(false)
    /// The same of the others, which are wiped when the right to open the vault has ended.
    private let isForgettingAll = Atomic<Bool>(false)

    /// Derives the keys of the vault of `configuration` (FileFormat, Keys).
    /// - Throws: `format`, when libcrypto fails.
    package init(masterKey: SecretBytes, configuration: VaultConfiguration) throws(VaultError) {
        vault = configuration.vault
        layout = ChunkLayout(chunkSize: configuration.chunkSize)
        var classCiphers: [SivCipher] = []
        var linkCiphers: [SivCipher] = []
        do throws(FormatError) {
            configurationKey = try KeyDerivation.configurationKey(master: masterKey, vault: vault)
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
        do throws(FormatError) { fingerprint = try Self.fingerprint(masterKey, of: vault) } catch {
            throw .format(error)
        }
    }

    /// The cipher that wraps file and directory secrets of the class.
    /// - Throws: `.locked` where its key is forgotten.
    package func classCipher(_ protectionClass: ProtectionClass) throws(StoreError) -> SivCipher {
        try checkPresent(protectionClass)
        return classCiphers[Int(protectionClass.rawValue) - 1]
    }

    /// The cipher of the symbolic links of the class.
    /// - Throws: `.locked` where its key is forgotten.
    package func linkCipher(_ protectionClass: ProtectionClass) throws(StoreError) -> SivCipher {
        try checkPresent(protectionClass)
        return linkCiphers[Int(protectionClass.rawValue) - 1]
    }

    /// The classes whose keys are here.
    package var presentClasses: [ProtectionClass] {
        ProtectionClass.allCases.filter(isPresent)
    }

    /// From now on no request gets a key that is about to be wiped. Those that have one already are to be waited for
    /// before `forget`.
    /// - Parameter everything: also the keys that outlive a lock.
    package func beginForgetting(everything: Bool = false) {
        isForgetting.store(true, ordering: .sequentiallyConsistent)
        if everything { isForgettingAll.store(true, ordering: .sequentiallyConsistent) }
    }

    /// Wipes the keys that `beginForgetting` was for. Nobody uses them any more.
    package func forget() {
        configurationKey.forget()
        for protectionClass in ProtectionClass.allCases where !isPresent(protectionClass) {
            classCiphers[Int(protectionClass.rawValue) - 1].forget()
            linkCiphers[Int(protectionClass.rawValue) - 1].forget()
        }
    }

    /// Derives the wiped keys again. Then requests get them again.
    /// - Throws: `format`, also where the master key is not the one of before: somebody may have put another
    ///   `vaultfs.json` in place, to have what is written from now on encrypted under a key of his.
    package func restore(masterKey: SecretBytes) throws(VaultError) {
        do throws(FormatError) {
            guard try Self.fingerprint(masterKey, of: vault) == fingerprint else {
                throw FormatError(.doesNotAuthenticate, "the slot holds the key of another vault")
            }
            configurationKey.refill(from: try KeyDerivation.configurationKey(master: masterKey, vault: vault))
            for protectionClass in ProtectionClass.allCases where !isPresent(protectionClass) {
                let index = Int(protectionClass.rawValue) - 1
                try Self.rekey(
                    classCiphers[index], KeyDerivation.classKey(master: masterKey, vault: vault, protectionClass))
                try Self.rekey(
                    linkCiphers[index], KeyDerivation.linkKey(master: masterKey, vault: vault, protectionClass))
            }
        } catch {
            throw .format(error)
        }
        isForgetting.store(false, ordering: .sequentiallyConsistent)
        isForgettingAll.store(false, ordering: .sequentiallyConsistent)
    }

    /// The vault's id sealed with a key that follows from the master key. AES-SIV is deterministic: equal keys seal equally,
    /// and what is sealed tells nothing of them.
    private static func fingerprint(_ masterKey: SecretBytes, of vault: VaultID) throws(FormatError) -> [UInt8] {
        let cipher = try cipher(KeyDerivation.classKey(master: masterKey, vault: vault, .none))
        do throws(CryptoError) {
            return try cipher.seal(vault.bytes, associatedData: [])
        } catch {
            throw FormatError(.cryptography, "cannot compare keys: \(error)")
        }
    }

    private func isPresent(_ protectionClass: ProtectionClass) -> Bool {
        protectionClass.outlivesLock
            ? !isForgettingAll.load(ordering: .sequentiallyConsistent)
            : !isForgetting.load(ordering: .sequentiallyConsistent)
    }

    private func checkPresent(_ protectionClass: ProtectionClass) throws(StoreError) {
        guard isPresent(protectionClass) else { throw .locked }
    }

    private static func cipher(_ key: SecretBytes) throws(FormatError) -> SivCipher {
        do throws(CryptoError) {
            return try SivCipher(key: key)
        } catch {
            throw FormatError(.cryptography, "cannot set up AES-SIV: \(error)")
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

extension ProtectionClass {
    /// Whether a lock that forgets leaves the class's key.
    package var outlivesLock: Bool { self == .untilFirstUnlock || self == .none }
}
