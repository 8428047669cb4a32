internal import Glibc
internal import LinuxSystem
package import VaultCrypto
package import VaultFormat
package import VaultStore

/// The first step of a rekey: one replacement of `vaultfs.json`. Later objects are of the next key epoch.
package enum RekeyStart {
    /// Timeout for changes of slots by another process.
    static let lockTimeout: Duration = .seconds(60)

    /// Checks if the vault can be rekeyed. Changes nothing.
    /// - Parameters:
    ///   - slot: the slot to keep.
    ///   - isForced: true to allow an expiring slot as the only one.
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

    /// Refuses a vault that would be unreadable after the first step, because the step removes the other slots.
    private static func checkContents(_ vault: VaultDirectory, masterKey: SecretBytes) throws(VaultError) {
        let keyRing = try KeyRing(masterKey: masterKey, configuration: vault.configuration)
        guard try !vault.hasRekeyStep() else {
            throw .refused(
                "\(vault.path.shown): vaultfs.rekey is there, though no rekey is unfinished: move it out of the vault; "
                    + "nothing was changed")
        }
        // A vaultfs.json from before another rekey authenticates too, but its key does not open the vault's objects.
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

    /// Draws a new master key, and replaces `vaultfs.json`. A failure changes nothing.
    /// - Parameters:
    ///   - vault: locked exclusively by the caller, then read. The user has seen its slots.
    ///   - slot: the slot to keep.
    /// - Throws: `inUse`, `refused`, `damaged`, `system`, `format`.
    package static func begin(
        _ vault: VaultDirectory, keeping slot: KeySlot, secret: SlotSecret, masterKey: SecretBytes
    ) throws(VaultError) -> SecretBytes {
        var replacement = try ConfigurationReplacement(of: vault, wait: lockTimeout)
        try vault.claim()
        let current = replacement.vault
        try current.authenticate(masterKey: masterKey)
        try checkContents(current, masterKey: masterKey)
        // Remove only slots seen by the user.
        guard current.configuration == vault.configuration, current.configuration.slot(slot.id) == slot else {
            throw .refused("\(vault.path.shown): slots were changed meanwhile; nothing was changed")
        }
        let newMaster = try VaultCreation.drawMasterKey()
        let bytes = try SlotEditor.wrapping { () throws(FormatError) in
            try current.configuration.beginningEpoch(
                keeping: slot, secret: secret, created: UtcTime.now(), masterKey: masterKey, newMaster: newMaster
            ).checkedBytes(masterKey: newMaster)
        }
        let before = try VaultError.wrapping("cannot check", vault.path) { () throws(StoreError) in
            try vault.descriptor.status()
        }
        try replacement.put(bytes)
        // Best effort: restore the times, which the replacement has changed.
        futimens(vault.descriptor.fd, [before.st_atim, before.st_mtim])
        return newMaster
    }
}
