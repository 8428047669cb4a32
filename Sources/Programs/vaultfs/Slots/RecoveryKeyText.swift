internal import LinuxSystem
internal import SystemPackage
internal import VaultCrypto
internal import VaultFormat

/// A new recovery key, and its text, to be shown once.
struct NewRecoveryKey {
    let secret: SlotSecret
    let text: String

    static func make() throws -> NewRecoveryKey {
        let key = try SecretBytes.random(count: RecoveryKey.size)
        return NewRecoveryKey(secret: try SlotSecret(kind: .recovery, bytes: key), text: RecoveryKey.text(key))
    }
}

/// Lines about recovery keys.
enum RecoveryKeyText {
    /// Returns the end of the failure for a person who has typed only wrong passphrases.
    static func advice(in vault: VaultConfiguration) -> String {
        "if the passphrase is right, vaultfs.json was changed: try a copy of that file"
            + (vault.hasRecoveryKey ? "; if the passphrase is lost, use --recovery-key" : "")
    }

    static func shown(_ key: String) -> String {
        """
        Recovery key, for when the passphrase is lost:

          \(key)

        Whoever has it can open the vault. Write it down and keep it elsewhere; it is not shown again.
        """
    }

    /// Reports on stderr that the recovery key of a slot no longer opens the vault.
    /// - Parameter isReplaced: true if there is a new one.
    static func reportEnd(of slot: KeySlot, in vault: FilePath, isReplaced: Bool = false) {
        let end = "recovery key of slot \(slot.id) no longer opens the vault"
        let advice = "; to make a new one: vaultfs slot add \(vault.quotedForShell) --new-recovery-key"
        Console.report(isReplaced ? "the old \(end)" : "the \(end)\(advice)")
    }
}

extension VaultConfiguration {
    var hasRecoveryKey: Bool { slots.contains { $0.kind == .recovery } }
}
