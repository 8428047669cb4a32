internal import FileSystem
internal import Glibc
internal import LinuxSystem
internal import SystemPackage
package import VaultCrypto
package import VaultFormat

/// The first step of a rekey: one replacement of `vaultfs.json`, from which on what is made is of the next key epoch.
package enum RekeyBeginning {
    /// How long to wait for another process that changes slots.
    static let patience: Duration = .seconds(60)

    /// Refuses where the vault cannot be rekeyed, without changing anything.
    /// - Parameters:
    ///   - slot: the one that is kept.
    ///   - isForced: also where no slot without an end is kept.
    /// - Throws: `slotRefused`, `damaged`, `system`, `format`.
    package static func check(
        _ vault: VaultDirectory, keeping slot: KeySlot, masterKey: SecretBytes, isForced: Bool
    ) throws(VaultError) {
        guard !vault.isOnReadOnlyStore else {
            throw .slotRefused("\(vault.path.shown) cannot be rekeyed: its file system is read-only")
        }
        guard (vault.configuration.epoch?.number ?? 0) < KeyEpoch.maximum else {
            throw .slotRefused(
                "\(vault.path.shown) was rekeyed \(KeyEpoch.maximum) times, which is all there are: export it, and "
                    + "import it into a new vault")
        }
        if slot.isLimited && !isForced {
            throw .slotRefused(
                "slot \(slot.id) would be the only one, and it has an end: use a secret of a slot without, or --force")
        }
        try checkContents(vault, masterKey: masterKey)
    }

    /// Refuses a vault that the first step would close: after it the slots of before are gone.
    private static func checkContents(_ vault: VaultDirectory, masterKey: SecretBytes) throws(VaultError) {
        let keyRing = try KeyRing(masterKey: masterKey, configuration: vault.configuration)
        let isStray = try VaultError.wrapping("cannot look at", vault.path) { () throws(StoreError) in
            try RekeyIntentFile.isThere(in: vault.descriptor)
        }
        guard !isStray else {
            throw .slotRefused(
                "\(vault.path.shown): vaultfs.rekey is there, though no rekey is unfinished: move it out of the vault; "
                    + "nothing was changed")
        }
        // A vaultfs.json of before another rekey authenticates; what is in the vault does not open with its key.
        do throws(StoreError) {
            guard try OpenDirectory.record(of: vault.descriptor, keyRing).isRoot else {
                throw StoreError.damaged("vaultfs.dir: the root's flag is not set")
            }
        } catch {
            throw .damaged(
                vault.path,
                "the root's record: \(error.reason): if vaultfs.json was put back, put the newest there; if not, "
                    + "'vaultfs verify --repair' comes first; nothing was changed")
        }
    }

    /// Begins, with a new master key. What fails leaves all as it was.
    /// - Parameters:
    ///   - vault: locked by the caller, exclusively, and read since; as it was announced.
    ///   - slot: the one slot that is kept, and `secret`, which opens it.
    /// - Returns: the new master key.
    /// - Throws: `inUse`, `slotRefused`, `damaged`, `system`, `format`.
    package static func begin(
        _ vault: VaultDirectory, keeping slot: KeySlot, secret: SlotSecret, masterKey: SecretBytes,
        created: String = UtcTime.now()
    ) throws(VaultError) -> SecretBytes {
        let lock = try ConfigurationLock.take(vault, wait: patience)
        defer { withExtendedLifetime(lock) {} }
        try vault.claim()
        // Only now nobody else replaces it.
        let current = try vault.reread()
        try current.authenticate(masterKey: masterKey)
        try checkContents(current, masterKey: masterKey)
        // What goes was announced, and is all that goes.
        guard current.configuration == vault.configuration, current.configuration.slot(slot.id) == slot else {
            throw .slotRefused("\(vault.path.shown): slots were changed meanwhile; nothing was changed")
        }
        let newMaster: SecretBytes
        do throws(CryptoError) {
            newMaster = try SecretBytes.random(count: KeyDerivation.secretSize)
        } catch {
            throw .format(FormatError(.cryptography, "cannot draw a master key: \(error)"))
        }
        let bytes = try SlotEditor.wrapping { () throws(FormatError) in
            try current.configuration.beginningEpoch(
                keeping: slot, secret: secret, created: created, masterKey: masterKey, newMaster: newMaster
            ).checkedBytes(masterKey: newMaster)
        }
        let before = try VaultError.wrapping("cannot look at", vault.path) { () throws(StoreError) in
            try vault.descriptor.status()
        }
        try ConfigurationReplacement(vault: vault, lock: lock, base: current.configuration).put(bytes) {}
        // Best effort: that has moved them.
        futimens(vault.descriptor.fd, [before.st_atim, before.st_mtim])
        return newMaster
    }
}
