internal import Glibc
internal import LinuxSystem
internal import SystemPackage
package import VaultCrypto
package import VaultFormat
package import VaultStore

/// The first step: one replacement of `vaultfs.json`. Objects made after it are of the next key epoch.
package enum RekeyStart {
    /// Timeout for another process that changes slots.
    static let lockTimeout: Duration = .seconds(60)

    /// Throws if the vault cannot be rekeyed. Changes nothing.
    /// - Parameters:
    ///   - slot: the slot to keep.
    ///   - isForced: allows to keep only a slot that expires.
    /// - Throws: `refused`, `damaged`, `system`, `format`.
    package static func check(
        _ vault: VaultDirectory, keeping slot: KeySlot, masterKey: SecretBytes, isForced: Bool
    ) throws(VaultError) {
        guard !vault.isOnReadOnlyStore else {
            throw .refused("\(vault.path.shown) cannot be rekeyed: its file system is read-only")
        }
        guard (vault.configuration.epoch?.number ?? 0) < KeyEpoch.maximum else {
            throw .refused(
                "\(vault.path.shown) was rekeyed \(KeyEpoch.maximum) times, which is all there are: export it, and "
                    + "import it into a new vault")
        }
        if slot.isLimited && !isForced {
            throw .refused(
                "slot \(slot.id) would be the only one, and it expires: use the secret of a slot that does not, or --force"
            )
        }
        try checkContents(vault, masterKey: masterKey)
    }

    /// Refuses a vault that the first step would make unreadable: the step removes the other slots.
    private static func checkContents(_ vault: VaultDirectory, masterKey: SecretBytes) throws(VaultError) {
        let keyRing = try KeyRing(masterKey: masterKey, configuration: vault.configuration)
        guard try !vault.hasRekeyStep() else {
            throw .refused(
                "\(vault.path.shown): vaultfs.rekey is there, though no rekey is unfinished: move it out of the vault; "
                    + "nothing was changed")
        }
        // A vaultfs.json from before another rekey authenticates. Its key does not open what is in the vault.
        do throws(StoreError) {
            guard try OpenDirectory.openRecord(of: vault.descriptor, keyRing).record.isRoot else {
                throw StoreError.damaged("vaultfs.dir: the root's flag is not set")
            }
        } catch {
            throw .damaged(
                vault.path,
                "the root's record: \(error.reason): if vaultfs.json was put back, put the newest there; if not, "
                    + "'vaultfs verify --repair' comes first; nothing was changed")
        }
    }

    /// Draws a new master key and begins. A failure changes nothing.
    /// - Parameters:
    ///   - vault: locked by the caller, exclusively, and read since. The user has seen its slots.
    ///   - slot: the slot to keep.
    ///   - secret: opens `slot`.
    /// - Returns: the new master key.
    /// - Throws: `inUse`, `refused`, `damaged`, `system`, `format`.
    package static func begin(
        _ vault: VaultDirectory, keeping slot: KeySlot, secret: SlotSecret, masterKey: SecretBytes,
        created: String = UtcTime.now()
    ) throws(VaultError) -> SecretBytes {
        var replacement = try ConfigurationReplacement(of: vault, wait: lockTimeout)
        try vault.claim()
        let current = replacement.vault
        try current.authenticate(masterKey: masterKey)
        try checkContents(current, masterKey: masterKey)
        // Only the slots that the user has seen go.
        guard current.configuration == vault.configuration, current.configuration.slot(slot.id) == slot else {
            throw .refused("\(vault.path.shown): slots were changed meanwhile; nothing was changed")
        }
        let newMaster = try VaultCreation.drawMasterKey()
        let bytes = try SlotEditor.wrapping { () throws(FormatError) in
            try current.configuration.beginningEpoch(
                keeping: slot, secret: secret, created: created, masterKey: masterKey, newMaster: newMaster
            ).checkedBytes(masterKey: newMaster)
        }
        let before = try VaultError.wrapping("cannot check", vault.path) { () throws(StoreError) in
            try vault.descriptor.status()
        }
        try replacement.put(bytes)
        // Best effort: the replacement has changed the times.
        futimens(vault.descriptor.fd, [before.st_atim, before.st_mtim])
        return newMaster
    }
}
