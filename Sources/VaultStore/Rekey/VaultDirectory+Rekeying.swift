internal import FileSystem
internal import LinuxSystem
internal import SystemPackage
package import VaultCrypto
internal import VaultFormat

extension VaultDirectory {
    /// Refuses a vault in which a killed rekey has left a step half done: it cannot be read before that is finished.
    /// - Throws: `halfRekeyed`.
    package func checkNoRekeyStep() throws(VaultError) {
        guard configuration.isRekeying else { return }
        let isThere = try VaultError.wrapping("cannot look at", path) { () throws(StoreError) in
            try RekeyIntentFile.isThere(in: descriptor)
        }
        if isThere { throw .halfRekeyed(path) }
    }

    /// Finishes what a killed rekey has left half done. The caller has locked the vault, exclusively.
    /// - Throws: `system`; `damaged` for a `vaultfs.rekey` that does not authenticate.
    package func finishRekeyStep(masterKey: SecretBytes) throws(VaultError) {
        guard configuration.isRekeying else { return }
        try claim()
        let keyRing = try KeyRing(masterKey: masterKey, configuration: configuration)
        try VaultError.wrapping("cannot go on with the rekey of", path) { () throws(StoreError) in
            try RekeyIntentFile.settle(root: descriptor, keyRing: keyRing, hold: writerLock)
        }
    }
}
