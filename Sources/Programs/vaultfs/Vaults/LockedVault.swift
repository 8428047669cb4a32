internal import VaultCrypto
internal import VaultFileSystem
internal import VaultStore

/// A vault, locked, with its keys, until the last reference goes.
struct LockedVault {
    let directory: VaultDirectory
    let keyRing: KeyRing
    let lease: VaultLease

    /// Locks the vault and wipes the master key, from which all keys follow. May start a play window.
    /// - Parameters:
    ///   - sharing: nil to read beside a writer.
    ///   - slot: the id of the opened slot.
    init(
        _ vault: VaultDirectory, _ sharing: VaultDirectory.Sharing?, isReadOnly: Bool, slot: Int,
        masterKey: SecretBytes, log: @escaping @Sendable (String) -> Void = { _ in }
    ) throws {
        defer { masterKey.forget() }
        if let sharing { try vault.lock(sharing, wait: VaultUse.lockTimeout) }
        // Read the configuration again, because the lock now keeps other processes from writing it.
        directory = try vault.reread()
        try directory.authenticate(masterKey: masterKey)
        if isReadOnly { try directory.checkNoRekeyStep() }
        keyRing = try KeyRing(masterKey: masterKey, configuration: directory.configuration)
        lease = try VaultLease(slot: slot, of: directory, keyRing: keyRing, log: log)
    }
}
