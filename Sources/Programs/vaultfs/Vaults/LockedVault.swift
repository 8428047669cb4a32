internal import VaultCrypto
internal import VaultFileSystem
internal import VaultStore

/// A vault that is locked, with its keys, until the last reference goes.
struct LockedVault {
    let directory: VaultDirectory
    let keyRing: KeyRing
    let lease: VaultLease

    /// Locks the vault and wipes the master key, from which all keys follow. A play window may begin now.
    /// - Parameters:
    ///   - sharing: nil to read beside a writer.
    ///   - slot: the id of the slot that was opened.
    init(
        _ vault: VaultDirectory, _ sharing: VaultDirectory.Sharing?, isReadOnly: Bool, slot: Int,
        masterKey: SecretBytes, log: @escaping @Sendable (String) -> Void = { _ in }
    ) throws {
        defer { masterKey.forget() }
        if let sharing { try vault.lock(sharing, wait: VaultUse.lockTimeout) }
        // Read again: now nobody else writes it.
        directory = try vault.reread()
        try directory.authenticate(masterKey: masterKey)
        if isReadOnly { try directory.checkNoRekeyStep() }
        keyRing = try KeyRing(masterKey: masterKey, configuration: directory.configuration)
        lease = try VaultLease(slot: slot, of: directory, keyRing: keyRing, log: log)
    }
}
