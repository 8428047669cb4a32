internal import FileSystem
internal import LinuxSystem
internal import SystemPackage
package import VaultCrypto
package import VaultFormat

extension VaultDirectory {
    /// The configuration as it is now, authenticated by a mount's configuration key.
    /// - Throws: `damaged`, `newerVersion`, `system`.
    package func reread(configurationKey: SecretBytes) throws(VaultError) -> VaultConfiguration {
        let current = try reread().configuration
        guard current.authenticates(configurationKey: configurationKey) else {
            throw .damaged(path.appending(Self.configurationEntry), "mac does not verify")
        }
        return current
    }

    /// Notes in the window of a slot what time it is; one that was not started starts. Where somebody has noted a later time,
    /// or the slot has no window, nothing is written.
    /// - Parameters:
    ///   - time: `YYYY-MM-DDThh:mm:ssZ`.
    ///   - wait: for another process that changes slots.
    /// - Returns: the configuration as it is then.
    /// - Throws: `inUse`, `slotRefused`, `damaged`, `newerVersion`, `system`, `format`.
    @discardableResult
    package func noteTime(
        _ time: String, inWindowOf id: Int, configurationKey: SecretBytes, wait: Duration
    ) throws(VaultError) -> VaultConfiguration {
        guard !isOnReadOnlyStore else {
            throw .slotRefused(
                "slot \(id) has a play window, and \(path.shown) is read-only: when it started cannot be noted")
        }
        let lock = try ConfigurationLock.take(self, wait: wait)
        defer { withExtendedLifetime(lock) {} }
        // Only now nobody else replaces it.
        let current = try reread(configurationKey: configurationKey)
        guard let window = current.slot(id)?.window?.seeing(time) else { return current }
        let (bytes, changed) = try SlotEditor.wrapping { () throws(FormatError) in
            let change = try current.settingWindow(of: id, to: window, configurationKey: configurationKey)
            return (try change.checkedBytes(configurationKey: configurationKey), change.configuration)
        }
        try ConfigurationReplacement(vault: self, lock: lock, base: current).put(bytes) {}
        return changed
    }
}

extension VaultDirectory {
    /// - Parameter now: seconds since 1970-01-01T00:00:00Z.
    /// - Throws: `slotExpired`, `clockSetBack` where the slot may not be used.
    package func checkLease(of slot: KeySlot, at now: Int64) throws(VaultError) {
        switch Lease(slot, at: now) {
        case .valid, .starts: break
        case .expired(let end): throw .slotExpired(path, id: slot.id, expires: UtcTime.text(secondsSinceEpoch: end))
        case .setBack(let seen):
            throw .clockSetBack(
                path, id: slot.id, clock: UtcTime.text(secondsSinceEpoch: now),
                seen: UtcTime.text(secondsSinceEpoch: seen))
        }
    }
}
