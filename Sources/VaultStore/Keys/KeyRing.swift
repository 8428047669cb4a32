internal import FileSystem
package import LinuxSystem
internal import Synchronization
package import VaultCrypto
package import VaultFormat

/// The keys of a vault: for each protection class, the cipher that wraps its secrets and the one of its links; of two key
/// epochs while a rekey is unfinished.
///
/// The master key is used to derive them and not kept. Any thread.
package final class KeyRing: Sendable {
    package let vault: VaultID
    package let layout: ChunkLayout
    /// What the vault's objects may be of; what is made is of the current one.
    package let epochs: KeyEpochs
    private let current: EpochKeys
    private let previous: EpochKeys?
    /// Of `vaultfs.rekey`, where there may be one.
    let intentCipher: SivCipher?
    /// The key of the MAC of `vaultfs.json`, with which a mount sees that its slot was renewed, and notes the time in a play
    /// window. Forgotten with the others.
    package let configurationKey: SecretBytes
    /// What the master key is known by: a value that only a key of this vault gives.
    private let fingerprint: [UInt8]
    /// What the previous master key is opened from again after a lock: it depends on nothing that may change meanwhile.
    private let configuration: VaultConfiguration
    /// True from before the keys that must not outlive a lock are wiped until they are all back.
    private let isForgetting = Atomic<Bool>(false)
    /// The same of the others, which are wiped when the right to open the vault has ended.
    private let isForgettingAll = Atomic<Bool>(false)

    /// Derives the keys of the vault of `configuration` (FileFormat, Keys).
    /// - Throws: `format`, when libcrypto fails, and where the key of the previous epoch does not authenticate.
    package init(masterKey: SecretBytes, configuration: VaultConfiguration) throws(VaultError) {
        vault = configuration.vault
        layout = ChunkLayout(chunkSize: configuration.chunkSize)
        epochs = configuration.epochs
        self.configuration = configuration
        do throws(FormatError) {
            configurationKey = try KeyDerivation.configurationKey(master: masterKey, vault: vault)
            fingerprint = try Self.fingerprint(masterKey, of: vault)
            current = try EpochKeys(epoch: configuration.epochs.current, masterKey: masterKey, vault: vault)
            guard let epoch = configuration.epochs.previous,
                let previousKey = try configuration.previousMasterKey(masterKey: masterKey)
            else {
                previous = nil
                intentCipher = nil
                return
            }
            defer { previousKey.forget() }
            previous = try EpochKeys(epoch: epoch, masterKey: previousKey, vault: vault)
            intentCipher = try .under(KeyDerivation.intentKey(master: masterKey, vault: vault))
        } catch {
            throw .format(error)
        }
    }

    /// The cipher that wraps file and directory secrets of the class in what is made now.
    /// - Throws: `.locked` where its key is forgotten.
    package func classCipher(_ protectionClass: ProtectionClass) throws(StoreError) -> SivCipher {
        try checkPresent(protectionClass)
        return current.classCipher(protectionClass)
    }

    /// The cipher that wraps file and directory secrets of the class in what is of `epoch`.
    /// - Throws: `.locked` where its key is forgotten; `.damaged` for an epoch that the vault has not.
    package func classCipher(_ protectionClass: ProtectionClass, epoch: UInt8) throws(StoreError) -> SivCipher {
        try checkPresent(protectionClass)
        if epoch == current.epoch { return current.classCipher(protectionClass) }
        guard let previous, epoch == previous.epoch else { throw .damaged(epochs.unknown(epoch)) }
        return previous.classCipher(protectionClass)
    }

    /// The cipher of the symbolic links of the class that are made now.
    /// - Throws: `.locked` where its key is forgotten.
    package func linkCipher(_ protectionClass: ProtectionClass) throws(StoreError) -> SivCipher {
        try checkPresent(protectionClass)
        return current.linkCipher(protectionClass)
    }

    /// The target of a symbolic link as it is stored, and whether it is of the current epoch: it carries none, and
    /// authenticates under one of the keys.
    /// - Throws: `.locked`; `.damaged`.
    package func linkTarget(
        ofStored stored: [UInt8]
    ) throws(StoreError) -> (target: [UInt8], class: ProtectionClass, isCurrent: Bool) {
        guard let protectionClass = LinkTarget.protectionClass(ofStored: stored) else {
            throw .damaged("link target: no protection class")
        }
        try checkPresent(protectionClass)
        do throws(FormatError) {
            let target = try LinkTarget.decode(stored, linkCipher: current.linkCipher(protectionClass))
            return (target, protectionClass, true)
        } catch {
            guard let previous, error.kind == .doesNotAuthenticate,
                let target = try? LinkTarget.decode(stored, linkCipher: previous.linkCipher(protectionClass))
            else { throw StoreError(error) }
            return (target, protectionClass, false)
        }
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
        // Whoever opened the vault for writing has finished what it was for.
        intentCipher?.forget()
        let gone = absentClasses
        current.forget(gone)
        previous?.forget(gone)
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
            let gone = absentClasses
            try current.restore(gone, masterKey: masterKey)
            if let previous, let previousKey = try configuration.previousMasterKey(masterKey: masterKey) {
                defer { previousKey.forget() }
                try previous.restore(gone, masterKey: previousKey)
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
        let cipher = try SivCipher.under(KeyDerivation.classKey(master: masterKey, vault: vault, .none))
        do throws(CryptoError) {
            return try cipher.seal(vault.bytes, associatedData: [])
        } catch {
            throw FormatError(.cryptography, "cannot compare keys: \(error)")
        }
    }

    private var absentClasses: [ProtectionClass] { ProtectionClass.allCases.filter { !isPresent($0) } }

    private func isPresent(_ protectionClass: ProtectionClass) -> Bool {
        protectionClass.outlivesLock
            ? !isForgettingAll.load(ordering: .sequentiallyConsistent)
            : !isForgetting.load(ordering: .sequentiallyConsistent)
    }

    private func checkPresent(_ protectionClass: ProtectionClass) throws(StoreError) {
        guard isPresent(protectionClass) else { throw .locked }
    }
}

extension ProtectionClass {
    /// Whether a lock that forgets leaves the class's key.
    package var outlivesLock: Bool { self == .untilFirstUnlock || self == .none }
}
