internal import LinuxSystem
internal import SystemPackage
package import VaultCrypto
package import VaultFormat

extension VaultDirectory {
    /// Reads the configuration again and authenticates it with a mount's configuration key.
    /// - Throws: `unusable`, `system`.
    package func reread(configurationKey: SecretBytes) throws(VaultError) -> VaultConfiguration {
        try reread().authenticated(by: configurationKey)
    }

    private func authenticated(by configurationKey: SecretBytes) throws(VaultError) -> VaultConfiguration {
        guard configuration.authenticates(configurationKey: configurationKey) else {
            throw .damagedConfiguration(path.appending(Self.configurationEntry), "changed without a secret")
        }
        return configuration
    }

    /// Saves the time in the window of a slot. A window that was not started starts. Writes nothing if a later time is
    /// there already, or if the slot has no window.
    /// - Parameters:
    ///   - time: `YYYY-MM-DDThh:mm:ssZ`.
    ///   - wait: for another process that changes slots.
    /// - Returns: the configuration after that.
    /// - Throws: `inUse`, `refused`, `unusable`, `system`.
    @discardableResult
    package func saveTime(
        _ time: String, inWindowOf id: Int, configurationKey: SecretBytes, wait: Duration
    ) throws(VaultError) -> VaultConfiguration {
        guard !isOnReadOnlyStore else {
            throw .refused(
                "slot \(id) has a play window, and \(path.shown) is read-only: its start cannot be recorded")
        }
        var replacement = try ConfigurationReplacement(of: self, wait: wait)
        let current = try replacement.vault.authenticated(by: configurationKey)
        guard let window = current.slot(id)?.window?.seeing(time) else { return current }
        let (bytes, changed) = try SlotEditor.wrapping { () throws(FormatError) in
            let change = try current.settingWindow(of: id, to: window, configurationKey: configurationKey)
            return (try change.checkedBytes(configurationKey: configurationKey), change.configuration)
        }
        try replacement.put(bytes)
        return changed
    }

    /// Checks that a slot may be used.
    /// - Parameter now: seconds since 1970-01-01T00:00:00Z.
    /// - Throws: `slotEnded`.
    package func checkLease(of slot: KeySlot, at now: Int64) throws(VaultError) {
        switch Lease(slot, at: now) {
        case .valid, .starts: break
        case .expired(let end):
            throw .slotEnded(
                "\(path.shown): slot \(slot.id) expired at \(UtcTime.text(secondsSinceEpoch: end)): renew it with "
                    + "'vaultfs slot change' and another slot's secret")
        case .setBack(let seen):
            throw .slotEnded(
                "\(path.shown): slot \(slot.id) expires, and the clock was set back: it shows "
                    + "\(UtcTime.text(secondsSinceEpoch: now)), the slot has seen \(UtcTime.text(secondsSinceEpoch: seen)). "
                    + "Correct the clock, or change the slot with another slot's secret")
        }
    }
}
