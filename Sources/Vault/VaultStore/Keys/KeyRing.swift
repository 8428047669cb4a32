internal import FileSystem
package import LinuxSystem
internal import Synchronization
package import VaultCrypto
package import VaultFormat

/// The keys of a vault, derived from its master key, which is not kept. During an unfinished rekey, it has the keys of
/// two epochs. A lock wipes keys, and an unlock restores them. Any thread.
package final class KeyRing: Sendable {
    package var vault: VaultID { configuration.vault }
    package let layout: ChunkLayout
    /// The epochs that the vault's objects may have. New objects get the current one.
    package var epochs: KeyEpochs { configuration.epochs }
    private let current: EpochKeys
    private let previous: EpochKeys?
    /// The cipher of `vaultfs.rekey`. Nil unless a rekey is unfinished.
    let intentCipher: SivCipher?
    /// The key of the MAC of `vaultfs.json`. With it a mount notices the renewal of its slot, and saves the time in a
    /// play window. Wiped with the others.
    package let configurationKey: SecretBytes
    /// The keys of the log's tags: the current epoch's, and during an unfinished rekey also the previous one's. A lock
    /// keeps them, because they decrypt nothing.
    let logKeys: [ChunkKeys]
    private let fingerprint: [UInt8]
    /// The configuration from which an unlock derives the previous epoch's keys. They cannot change meanwhile.
    private let configuration: VaultConfiguration
    /// True from before a lock wipes its keys until all of them are restored.
    private let isForgetting = Atomic<Bool>(false)
    /// The same for the other keys, which are wiped when the right to open the vault has ended.
    private let isForgettingAll = Atomic<Bool>(false)

    /// Derives the keys of the vault of `configuration` (FileFormat, Keys).
    /// - Throws: `format`, if libcrypto fails, or if the key of the previous epoch does not authenticate.
    package init(masterKey: SecretBytes, configuration: VaultConfiguration) throws(VaultError) {
        let vault = configuration.vault
        layout = ChunkLayout(chunkSize: configuration.chunkSize)
        self.configuration = configuration
        do throws(FormatError) {
            configurationKey = try KeyDerivation.configurationKey(master: masterKey, vault: vault)
            fingerprint = try Self.fingerprint(masterKey, of: vault)
            current = try EpochKeys(epoch: configuration.epochs.current, masterKey: masterKey, vault: vault)
            let logKeys = try KeyDerivation.logKeys(master: masterKey, vault: vault)
            guard let epoch = configuration.epochs.previous,
                let previousKey = try configuration.previousMasterKey(masterKey: masterKey)
            else {
                previous = nil
                intentCipher = nil
                self.logKeys = [logKeys]
                return
            }
            defer { previousKey.forget() }
            self.logKeys = [logKeys, try KeyDerivation.logKeys(master: previousKey, vault: vault)]
            previous = try EpochKeys(epoch: epoch, masterKey: previousKey, vault: vault)
            intentCipher = try .under(KeyDerivation.intentKey(master: masterKey, vault: vault))
        } catch {
            throw .format(error)
        }
    }

    /// Returns the cipher that wraps the secrets of files and directories of a class and an epoch, the current one if
    /// nil.
    /// - Throws: `.locked` if its key is forgotten; `.damaged` if the vault does not have the epoch.
    package func classCipher(_ protectionClass: ProtectionClass, epoch: UInt8? = nil) throws(StoreError) -> SivCipher {
        try checkPresent(protectionClass)
        guard let epoch, epoch != current.epoch else { return current.classCipher(protectionClass) }
        guard let previous, epoch == previous.epoch else { throw .damaged(epochs.unknown(epoch)) }
        return previous.classCipher(protectionClass)
    }

    /// Returns the cipher for opening the wrap of a file's header.
    /// - Throws: as `classCipher`. `.damaged` if the header's public key is invalid.
    func wrapCipher(of header: FileHeader) throws(StoreError) -> SivCipher {
        guard let ephemeralKey = header.ephemeralKey else {
            return try classCipher(header.protectionClass, epoch: header.epoch)
        }
        try checkPresent(header.protectionClass)
        let inbox = header.epoch == current.epoch ? current.inbox : previous?.inbox
        guard let inbox else { throw .damaged(epochs.unknown(header.epoch)) }
        return try StoreError.ofFormat(try inbox.cipher(ofWrap: ephemeralKey))
    }

    /// Returns the cipher for new symbolic links of a class.
    /// - Throws: `.locked` if its key is forgotten.
    package func linkCipher(_ protectionClass: ProtectionClass) throws(StoreError) -> SivCipher {
        try checkPresent(protectionClass)
        return current.linkCipher(protectionClass)
    }

    /// Decrypts a stored link target. A link carries no epoch, so its epoch is the one whose key authenticates it.
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

    var currentLogKeys: ChunkKeys { logKeys[0] }

    /// The classes whose keys are present.
    package var presentClasses: [ProtectionClass] { ProtectionClass.allCases.filter(isPresent) }

    /// Denies requests, from now on, the keys to be wiped. The caller waits for requests with such keys before it calls
    /// `forget`.
    /// - Parameter everything: true for all keys, including those that outlive a lock.
    package func beginForgetting(everything: Bool = false) {
        isForgetting.store(true, ordering: .sequentiallyConsistent)
        if everything { isForgettingAll.store(true, ordering: .sequentiallyConsistent) }
    }

    /// Wipes the keys chosen by `beginForgetting`. Requests no longer use them.
    package func forget() {
        configurationKey.forget()
        // An unlock need not restore this one, because only the opening for writing needs it.
        intentCipher?.forget()
        let absent = absentClasses
        current.forget(absent)
        previous?.forget(absent)
    }

    /// Derives the wiped keys again, and admits requests to them.
    /// - Throws: `format`, also for a different master key than before. Otherwise an attacker who replaces
    ///   `vaultfs.json` could have new files encrypted under their key.
    package func restore(masterKey: SecretBytes) throws(VaultError) {
        do throws(FormatError) {
            guard try Self.fingerprint(masterKey, of: vault) == fingerprint else {
                throw FormatError(.doesNotAuthenticate, "the slot holds the key of another vault")
            }
            configurationKey.refill(from: try KeyDerivation.configurationKey(master: masterKey, vault: vault))
            let absent = absentClasses
            try current.restore(absent, masterKey: masterKey)
            if let previous, let previousKey = try configuration.previousMasterKey(masterKey: masterKey) {
                defer { previousKey.forget() }
                try previous.restore(absent, masterKey: previousKey)
            }
        } catch {
            throw .format(error)
        }
        isForgetting.store(false, ordering: .sequentiallyConsistent)
        isForgettingAll.store(false, ordering: .sequentiallyConsistent)
    }

    /// Returns the vault's id, encrypted with a key derived from the master key. AES-SIV is deterministic, so equal
    /// keys give equal ciphertext, which reveals nothing about them.
    private static func fingerprint(_ masterKey: SecretBytes, of vault: VaultID) throws(FormatError) -> [UInt8] {
        let cipher = try SivCipher.under(KeyDerivation.classKey(master: masterKey, vault: vault, .none))
        return try cryptography("cannot compare keys", cipher.encrypt(vault.bytes, associatedData: []))
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
    /// True if a lock with the policy `forget` keeps the class's key.
    package var outlivesLock: Bool { self == .untilFirstUnlock || self == .none || self == .inbox }
}

/// Headers of files and records of directories, made and opened with the vault's keys.
/// - Throws: `.damaged` if something does not parse or authenticate; `.locked` if the key of its class is forgotten.
extension KeyRing {
    /// Makes a header for a new, empty file of the current epoch. Returns it with the file's keys.
    /// - Parameter parentClass: the directory's class.
    func makeHeader(_ parentClass: ProtectionClass) throws(StoreError) -> (header: FileHeader, keys: FileKeys) {
        let protectionClass = parentClass.ofNewFiles
        // In an inbox this class can wrap a secret even without its key. The header then gets the wrap's public key.
        let isArrival = protectionClass == .unlessOpen && !isPresent(.unlessOpen) && isPresent(.inbox)
        let wrap = isArrival ? try StoreError.ofFormat(current.inbox.makeWrap()) : nil
        let cipher = if let wrap { wrap.cipher } else { try classCipher(protectionClass) }
        var (header, keys) = try StoreError.ofFormat(
            try FileHeader.make(
                protectionClass, epoch: epochs.current, classCipher: cipher, ephemeralKey: wrap?.ephemeralKey,
                vault: vault))
        // Mark it now, because it may get a second name while its keys are forgotten, when it cannot be marked.
        header.isLinked = isArrival
        return (header, keys)
    }

    /// Authenticates a header of 128 bytes.
    func unwrapHeader(_ bytes: [UInt8]) throws(StoreError) -> (header: FileHeader, keys: FileKeys) {
        let header = try StoreError.ofFormat(FileHeader.parse(bytes, epochs: epochs))
        let cipher = try wrapCipher(of: header)
        return try StoreError.ofFormat((header, try header.unwrapKeys(classCipher: cipher, vault: vault)))
    }

    /// Makes a record for a new directory of the current epoch. Returns it with the directory's keys.
    /// - Throws: `.locked` if the key of the class is forgotten.
    package func makeRecord(
        _ protectionClass: ProtectionClass, isRoot: Bool = false
    ) throws(StoreError) -> (bytes: [UInt8], keys: DirectoryKeys) {
        let cipher = try classCipher(protectionClass)
        return try StoreError.ofFormat(
            try DirectoryRecord.make(
                protectionClass, epoch: epochs.current, isRoot: isRoot, classCipher: cipher, vault: vault))
    }

    /// Checks only the structure of a record.
    /// - Throws: `.damaged`, with the field that breaks the format.
    package func parseRecord(_ bytes: [UInt8]) throws(StoreError) -> DirectoryRecord {
        try StoreError.ofFormat(DirectoryRecord.parse(bytes, epochs: epochs))
    }
}

extension DirectoryRecord {
    /// Authenticates the record and derives the directory's keys.
    /// - Throws: `.damaged`; `.locked` if the key of its class is forgotten.
    package func unwrapKeys(_ keyRing: KeyRing) throws(StoreError) -> DirectoryKeys {
        let cipher = try keyRing.classCipher(protectionClass, epoch: epoch)
        return try StoreError.ofFormat(unwrapKeys(classCipher: cipher, vault: keyRing.vault))
    }
}

/// The ciphers of one key epoch: one for the secrets of each protection class, and one for its links. Any thread.
struct EpochKeys: Sendable {
    let epoch: UInt8
    private let vault: VaultID
    /// The ciphers by raw value of the class, from 1.
    private let ciphers: [(ofClass: SivCipher, ofLinks: SivCipher)]
    let inbox: InboxKeys

    /// Derives the ciphers from the epoch's master key (FileFormat, Keys).
    init(epoch: UInt8, masterKey: SecretBytes, vault: VaultID) throws(FormatError) {
        self.epoch = epoch
        self.vault = vault
        precondition(ProtectionClass.allCases.map(\.rawValue) == [1, 2, 3, 4, 5], "internal error: order of classes")
        ciphers = try ProtectionClass.allCases.map { (protectionClass) throws(FormatError) in
            (
                try .under(KeyDerivation.classKey(master: masterKey, vault: vault, protectionClass)),
                try .under(KeyDerivation.linkKey(master: masterKey, vault: vault, protectionClass))
            )
        }
        inbox = try InboxKeys(
            classKey: KeyDerivation.classKey(master: masterKey, vault: vault, .unlessOpen), vault: vault)
    }

    func classCipher(_ protectionClass: ProtectionClass) -> SivCipher {
        ciphers[Int(protectionClass.rawValue) - 1].ofClass
    }

    func linkCipher(_ protectionClass: ProtectionClass) -> SivCipher {
        ciphers[Int(protectionClass.rawValue) - 1].ofLinks
    }

    func forget(_ classes: [ProtectionClass]) {
        for protectionClass in classes {
            classCipher(protectionClass).forget()
            linkCipher(protectionClass).forget()
        }
        if classes.contains(.unlessOpen) { inbox.forgetPrivateKey() }
        if classes.contains(.inbox) { inbox.forgetSenderKey() }
    }

    func restore(_ classes: [ProtectionClass], masterKey: SecretBytes) throws(FormatError) {
        for protectionClass in classes {
            let classKey = try KeyDerivation.classKey(master: masterKey, vault: vault, protectionClass)
            let linkKey = try KeyDerivation.linkKey(master: masterKey, vault: vault, protectionClass)
            try cryptography("class key", classCipher(protectionClass).rekey(classKey))
            try cryptography("link key", linkCipher(protectionClass).rekey(linkKey))
            if protectionClass == .unlessOpen { try inbox.restore(classKey: classKey) }
        }
    }
}

extension SivCipher {
    static func under(_ key: SecretBytes) throws(FormatError) -> SivCipher {
        try cryptography("AES-SIV key", SivCipher(key: key))
    }
}

extension StoreError {
    /// Evaluates `body` and throws its error as a `StoreError`.
    @inline(__always)
    package static func ofCrypto<Result>(_ body: @autoclosure () throws(CryptoError) -> Result) throws(StoreError)
        -> Result
    {
        do throws(CryptoError) { return try body() } catch { throw StoreError(error) }
    }

    /// Runs `body` and throws its error as a `StoreError`.
    @inline(__always)
    static func ofCrypto<Result>(_ body: () throws(CryptoError) -> Result) throws(StoreError) -> Result {
        do throws(CryptoError) { return try body() } catch { throw StoreError(error) }
    }
}
