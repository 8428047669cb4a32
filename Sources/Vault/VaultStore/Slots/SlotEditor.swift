internal import LinuxSystem
package import VaultCrypto
package import VaultFormat

/// An editor of a vault's slots, mounted or not. Needs the master key. If two processes or threads change slots at the
/// same time, one waits, so that all changes are kept. Any thread.
package struct SlotEditor {
    package struct Removal: Sendable {
        package let removed: [KeySlot]
        /// Empty if the vault can never be opened again.
        package let remaining: [KeySlot]
    }

    private let vault: VaultDirectory
    private let masterKey: SecretBytes
    private let wait: Duration

    /// - Parameter wait: maximum wait for another process that changes slots, which may be deriving a key.
    package init(_ vault: VaultDirectory, masterKey: SecretBytes, wait: Duration = .seconds(60)) {
        self.vault = vault
        self.masterKey = masterKey
        self.wait = wait
    }

    /// Adds a slot. Takes as long as two key derivations.
    /// - Parameter onReady: called with the new slot, just before it is put in place. If it throws, the vault stays the
    ///   same.
    /// - Throws: `inUse`, `refused`, `unusable`, `system`.
    @discardableResult
    package func add(
        _ request: SlotRequest, onReady: (KeySlot) throws(VaultError) -> Void = { _ in }
    ) throws(VaultError) -> KeySlot {
        try makeSlot(onReady: onReady) { (configuration) throws(FormatError) in
            try configuration.adding(request, created: UtcTime.now(), masterKey: masterKey)
        }
    }

    /// Replaces `slot` by a new slot with its id. One replacement of the file does both, so one of the two slots opens
    /// the vault at any time.
    /// - Parameters:
    ///   - isForced: true to allow an expiring slot in place of the last one that does not expire.
    ///   - onReady: as for `add`.
    /// - Throws: as `add`; `refused` if `slot` has changed since, or if the change needs `isForced`.
    @discardableResult
    package func change(
        _ slot: KeySlot, to request: SlotRequest, isForced: Bool,
        onReady: (KeySlot) throws(VaultError) -> Void = { _ in }
    ) throws(VaultError) -> KeySlot {
        try makeSlot(onReady: onReady) { (configuration) throws(FormatError) in
            try Self.check(
                slot, in: configuration, expires: request.expires, hasWindow: request.window != nil, isForced: isForced)
            return try configuration.replacingSlot(slot.id, by: request, created: UtcTime.now(), masterKey: masterKey)
        }
    }

    /// Sets or, with nil, removes the window of `slot`. Needs no secret of the slot.
    /// - Parameters:
    ///   - label: another label. Nil to keep it.
    ///   - isForced: as for `change`.
    /// - Throws: as `change`.
    package func change(
        _ slot: KeySlot, toWindow window: PlayWindow?, label: String? = nil, isForced: Bool
    ) throws(VaultError) -> KeySlot {
        try makeSlot { (current) throws(FormatError) in
            try Self.check(
                slot, in: current, expires: slot.expires, hasWindow: window != nil, isForced: isForced)
            let key = try KeyDerivation.configurationKey(master: masterKey, vault: current.vault)
            return try current.settingWindow(of: slot.id, to: window, label: label, configurationKey: key)
        }
    }

    /// Throws if the slot has changed since, or if the change would give an end to the last slot without one.
    private static func check(
        _ slot: KeySlot, in configuration: VaultConfiguration, expires: String?, hasWindow: Bool, isForced: Bool
    ) throws(FormatError) {
        guard configuration.slot(slot.id) == slot else {
            throw FormatError(.invalidValue, "slot \(slot.id) was changed by another program; nothing was changed")
        }
        let others = configuration.slots.filter { $0.id != slot.id }
        guard !isForced, !slot.isLimited, expires != nil || hasWindow, others.allSatisfy(\.isLimited) else { return }
        let last = others.compactMap(\.expires).reduce(expires ?? "", max)
        let when = hasWindow || others.contains { $0.window != nil } ? "then" : "after \(last)"
        throw FormatError(
            .invalidValue,
            "not changed: every slot would expire, and \(when) nothing opens the vault; --force changes it anyway"
        )
    }

    /// Removes slots.
    /// - Parameter isForced: true to allow this even if no remaining slot opens the vault for ever, or now. The last
    ///   slot is replaced by one with a forgotten secret, because the format requires a slot.
    /// - Throws: as `add`; `refused` for an unknown id, or if the removal needs `isForced`.
    @discardableResult
    package func remove(_ ids: Set<Int>, isForced: Bool) throws(VaultError) -> Removal {
        var removal = Removal(removed: [], remaining: [])
        try replaceConfiguration { (current) throws(FormatError) in
            removal = try Self.removal(of: ids, from: current, isForced: isForced)
            return removal.remaining.isEmpty
                ? try current.removingAllSlots(created: UtcTime.now(), masterKey: masterKey)
                : try current.removingSlots(ids, masterKey: masterKey)
        }
        return removal
    }

    private static func removal(
        of ids: Set<Int>, from current: VaultConfiguration, isForced: Bool
    ) throws(FormatError) -> Removal {
        if let missing = ids.subtracting(current.slots.map(\.id)).min() {
            let known = current.slots.map { "\($0.id)" }.joined(separator: ", ")
            throw FormatError(.invalidValue, "there is no slot \(missing); the slots are: \(known)")
        }
        let remaining = current.slots.filter { !ids.contains($0.id) }
        let now = UtcTime.secondsSinceEpoch()
        // Require an endless slot if there was one, because the secret of a limited slot cannot make another.
        let hadEndless = current.slots.contains { !$0.isLimited }
        guard isForced || remaining.contains(where: { hadEndless ? !$0.isLimited : !$0.isExpired(at: now) }) else {
            let isEndless = hadEndless && !remaining.isEmpty
            let what =
                isEndless
                ? "the last slot that does not expire"
                : remaining.isEmpty ? "the last slot" : "the last slot that has not expired"
            let then = isEndless ? " once the others have expired" : ""
            throw FormatError(
                .invalidValue,
                "not removed: without \(what) the vault can never be opened again\(then); --force removes it anyway"
            )
        }
        return Removal(removed: current.slots.filter { ids.contains($0.id) }, remaining: remaining)
    }

    private func makeSlot(
        onReady: (KeySlot) throws(VaultError) -> Void = { _ in },
        _ change: (VaultConfiguration) throws(FormatError) -> ConfigurationChange
    ) throws(VaultError) -> KeySlot {
        guard let made = try replaceConfiguration(onReady: onReady, change).made else {
            preconditionFailure("internal error: a change without a slot")
        }
        return made
    }

    @discardableResult
    private func replaceConfiguration(
        onReady: (KeySlot) throws(VaultError) -> Void = { _ in },
        _ change: (VaultConfiguration) throws(FormatError) -> ConfigurationChange
    ) throws(VaultError) -> ConfigurationChange {
        var replacement = try ConfigurationReplacement(of: vault, wait: wait)
        try replacement.vault.authenticate(masterKey: masterKey)
        let (change, bytes) = try Self.wrapping { () throws(FormatError) in
            let change = try change(replacement.vault.configuration)
            return (change, try change.checkedBytes(masterKey: masterKey))
        }
        try replacement.put(bytes) { () throws(VaultError) in
            if let made = change.made { try onReady(made) }
        }
        return change
    }

    /// Runs `body` and rethrows its error.
    /// - Throws: `.refused` with the reason of its error.
    package static func wrapping<Result>(_ body: () throws(FormatError) -> Result) throws(VaultError) -> Result {
        do throws(FormatError) { return try body() } catch {
            throw .refused(error.reason)
        }
    }
}
