internal import LinuxSystem
package import VaultCrypto
package import VaultFormat

/// Changes the slots of a vault, mounted or not. Needs the master key. If two processes or threads change slots at the same
/// time, one waits, so that no change is lost. Any thread.
package struct SlotEditor {
    package struct Removal: Sendable {
        package let removed: [KeySlot]
        /// Empty if nothing can open the vault any more.
        package let remaining: [KeySlot]
    }

    private let vault: VaultDirectory
    private let masterKey: SecretBytes
    private let wait: Duration

    /// - Parameter wait: how long to wait for another process that changes slots. It may take the time to derive a key.
    package init(_ vault: VaultDirectory, masterKey: SecretBytes, wait: Duration = .seconds(60)) {
        self.vault = vault
        self.masterKey = masterKey
        self.wait = wait
    }

    /// Adds a slot. Takes as long as two key derivations.
    /// - Parameter onReady: called with the slot when it only has to be put in place. If it throws, nothing changes.
    /// - Throws: `inUse`, `refused`, `unusable`, `system`.
    @discardableResult
    package func add(
        _ request: SlotRequest, onReady: (KeySlot) throws(VaultError) -> Void = { _ in }
    ) throws(VaultError) -> KeySlot {
        try makeSlot(onReady: onReady) { (configuration) throws(FormatError) in
            try configuration.adding(request, created: UtcTime.now(), masterKey: masterKey)
        }
    }

    /// Replaces `slot` by a new slot with its id. Both happen with one replacement of the file, so one of the two slots
    /// opens the vault at any time.
    /// - Parameters:
    ///   - isForced: also if it is the last slot that does not expire, and the new one does.
    ///   - onReady: as for `add`.
    /// - Throws: as `add`; `refused` if `slot` has changed since, or if the change needs `isForced`.
    @discardableResult
    package func change(
        _ slot: KeySlot, to request: SlotRequest, isForced: Bool,
        onReady: (KeySlot) throws(VaultError) -> Void = { _ in }
    ) throws(VaultError) -> KeySlot {
        try makeSlot(onReady: onReady) { (configuration) throws(FormatError) in
            try Self.checkUnchanged(slot, in: configuration)
            if !isForced {
                try Self.checkEndlessSlot(
                    beside: slot, in: configuration, expires: request.expires, hasWindow: request.window != nil)
            }
            return try configuration.replacingSlot(slot.id, by: request, created: UtcTime.now(), masterKey: masterKey)
        }
    }

    /// Gives `slot` another window, or none. Does not need the slot's secret.
    /// - Parameters:
    ///   - label: another label. Nil to keep it.
    ///   - isForced: as for `change`.
    /// - Throws: as `change`.
    package func change(
        _ slot: KeySlot, toWindow window: PlayWindow?, label: String? = nil, isForced: Bool
    ) throws(VaultError) -> KeySlot {
        let changed = try replaceConfiguration { (current) throws(FormatError) in
            try Self.checkUnchanged(slot, in: current)
            if !isForced {
                try Self.checkEndlessSlot(beside: slot, in: current, expires: slot.expires, hasWindow: window != nil)
            }
            let key = try KeyDerivation.configurationKey(master: masterKey, vault: current.vault)
            return try current.settingWindow(of: slot.id, to: window, label: label, configurationKey: key)
        }.configuration.slot(slot.id)
        guard let changed else { preconditionFailure("internal error: a change without a slot") }
        return changed
    }

    private static func checkUnchanged(_ slot: KeySlot, in configuration: VaultConfiguration) throws(FormatError) {
        guard configuration.slot(slot.id) == slot else {
            throw FormatError(.invalidValue, "slot \(slot.id) was changed by another program; nothing was changed")
        }
    }

    /// Throws if the change would give an end to the last slot without one.
    private static func checkEndlessSlot(
        beside slot: KeySlot, in configuration: VaultConfiguration, expires: String?, hasWindow: Bool
    ) throws(FormatError) {
        let others = configuration.slots.filter { $0.id != slot.id }
        guard !slot.isLimited, expires != nil || hasWindow, others.allSatisfy(\.isLimited) else { return }
        let last = others.compactMap(\.expires).reduce(expires ?? "", max)
        let when = hasWindow || others.contains { $0.window != nil } ? "then" : "after \(last)"
        throw FormatError(
            .invalidValue,
            "not changed: every slot would expire, and \(when) nothing opens the vault; --force changes it anyway"
        )
    }

    /// Removes slots.
    /// - Parameter isForced: also if no slot is left that opens the vault for ever, or none that opens it now. The last
    ///   slot is replaced by one that nothing opens, because the format has no vault without slots.
    /// - Throws: as `add`; `refused` for an id that no slot has, or if the removal needs `isForced`.
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
        // The secret of a slot with an end cannot make one without.
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
        onReady: (KeySlot) throws(VaultError) -> Void,
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

    /// Runs `body`.
    /// - Throws: `.refused` with the reason of its error.
    package static func wrapping<Result>(_ body: () throws(FormatError) -> Result) throws(VaultError) -> Result {
        do throws(FormatError) { return try body() } catch {
            throw .refused(error.reason)
        }
    }
}
