package import VaultCrypto

/// A changed configuration, not yet written.
package struct ConfigurationChange: Sendable {
    package let configuration: VaultConfiguration
    /// The slot that was made, if one was.
    package var made: KeySlot?
    /// The secret that opens it.
    var secret: SlotSecret?

    /// The bytes of the new `vaultfs.json`, after checking what a reader will get: the configuration, whose MAC
    /// verifies, and in which the new secret opens the master key. Takes as long as its key derivation.
    /// Throws `invalidValue` if the file would be larger than the format allows.
    package func checkedBytes(masterKey: SecretBytes) throws(FormatError) -> [UInt8] {
        let bytes = try checkedBytes(
            configurationKey: KeyDerivation.configurationKey(master: masterKey, vault: configuration.vault))
        guard let made, let secret else { return bytes }
        guard let opened = try configuration.slot(made.id)?.open(with: secret, head: configuration.headLines),
            opened.hasSameBytes(as: masterKey)
        else { throw FormatError(.cryptography, "slot \(made.id): the new secret does not open it") }
        return bytes
    }

    /// The same, without checking that the secret opens the slot.
    /// - Throws: `invalidValue` if the file would be too large; `cryptography` if it does not verify.
    package func checkedBytes(configurationKey: SecretBytes) throws(FormatError) -> [UInt8] {
        let bytes = configuration.serialized()
        try require(
            bytes.count <= VaultConfiguration.maximumSize, .invalidValue,
            "vaultfs.json would have over \(VaultConfiguration.maximumSize) bytes")
        let reread = try VaultConfiguration.parse(bytes)
        try require(
            reread == configuration && reread.authenticates(configurationKey: configurationKey), .cryptography,
            "vaultfs.json: the changed content is not valid")
        return bytes
    }
}

/// Changes of slots. `created` is a time `YYYY-MM-DDThh:mm:ssZ`. A change that makes a slot takes as long as its key
/// derivation.
extension VaultConfiguration {
    package func slot(_ id: Int) -> KeySlot? { slots.first { $0.id == id } }

    /// With one slot more, in which the request's secret opens the master key. Throws `invalidValue` if there is no room
    /// for another slot.
    package func adding(
        _ request: SlotRequest, created: String, masterKey: SecretBytes
    ) throws(FormatError) -> ConfigurationChange {
        try require(
            slots.count < Self.maximumSlotCount, .invalidValue,
            "the vault has \(slots.count) slots, and there is no room for more")
        return try changed(keeping: slots, making: request, id: unusedID, created, masterKey)
    }

    /// With a new slot of the id `id` in the place of the one that has it. Throws `invalidValue` if there is no such slot.
    package func replacingSlot(
        _ id: Int, by request: SlotRequest, created: String, masterKey: SecretBytes
    ) throws(FormatError) -> ConfigurationChange {
        try require(slot(id) != nil, .invalidValue, "there is no slot \(id)")
        return try changed(keeping: slots.filter { $0.id != id }, making: request, id: id, created, masterKey)
    }

    /// Without the slots of these ids. Throws `invalidValue` if none would be left: the format has no such vault.
    package func removingSlots(_ ids: Set<Int>, masterKey: SecretBytes) throws(FormatError) -> ConfigurationChange {
        let slots = slots.filter { !ids.contains($0.id) }
        try require(!slots.isEmpty, .invalidValue, "a vault has at least one slot")
        let key = try KeyDerivation.configurationKey(master: masterKey, vault: vault)
        return ConfigurationChange(configuration: try next(slots: slots, epoch: epoch, key: key))
    }

    /// With one slot alone, which nothing opens: its secret is drawn and forgotten. The format has no vault without
    /// slots.
    /// - Throws: `cryptography`; `keyForgotten`.
    package func removingAllSlots(created: String, masterKey: SecretBytes) throws(FormatError) -> ConfigurationChange {
        let key = try cryptography("slot \(unusedID)", SecretBytes.random(count: RecoveryKey.size))
        let request = SlotRequest(secret: try SlotSecret(kind: .recovery, bytes: key), label: "nothing opens this slot")
        return try changed(keeping: [], making: request, id: unusedID, created, masterKey)
    }

    /// With another window for the slot of this id, and another label unless that is nil. Nil removes the window. Needs
    /// neither the slot's secret nor the master key. Throws `invalidValue` if there is no such slot.
    package func settingWindow(
        of id: Int, to window: PlayWindow?, label: String? = nil, configurationKey: SecretBytes
    ) throws(FormatError) -> ConfigurationChange {
        var slots = slots
        guard let index = slots.firstIndex(where: { $0.id == id }) else {
            throw FormatError(.invalidValue, "there is no slot \(id)")
        }
        slots[index].window = window
        if let label { slots[index].label = label }
        return ConfigurationChange(configuration: try next(slots: slots, epoch: epoch, key: configurationKey))
    }

    /// Not that of a slot removed before, as far as can be seen.
    private var unusedID: Int {
        let highest = slots.map(\.id).max() ?? 0
        if highest < Int.max { return highest + 1 }
        let used = Set(slots.map(\.id))
        return (1...Self.maximumSlotCount + 1).first { !used.contains($0) } ?? 0
    }

    private func changed(
        keeping kept: [KeySlot], making request: SlotRequest, id: Int, _ created: String, _ masterKey: SecretBytes
    ) throws(FormatError) -> ConfigurationChange {
        try Self.checkTimes([created] + [request.expires].compactMap { $0 })
        let made = try KeySlot.make(id: id, request: request, created: created, masterKey: masterKey, head: headLines)
        let key = try KeyDerivation.configurationKey(master: masterKey, vault: vault)
        return ConfigurationChange(
            configuration: try next(slots: kept + [made], epoch: epoch, key: key), made: made, secret: request.secret)
    }
}

/// Changes of the key epoch.
extension VaultConfiguration {
    /// The first write of a rekey: the next epoch under `newMaster`, with one slot alone, `slot` encrypted again with
    /// the secret that opened it. Takes as long as its key derivation.
    /// Throws `invalidValue` if a rekey is unfinished or no epoch is left.
    package func beginningEpoch(
        keeping slot: KeySlot, secret: SlotSecret, created: String, masterKey: SecretBytes, newMaster: SecretBytes
    ) throws(FormatError) -> ConfigurationChange {
        try require(!isRekeying, .invalidValue, "a rekey is unfinished")
        let number = epoch?.number ?? 0
        try require(
            number < KeyEpoch.maximum, .invalidValue,
            "the vault was rekeyed \(number) times, and cannot be rekeyed again")
        let head = Self.headLines(vault: vault, chunkSize: chunkSize, features: [Self.epochsFeature])
        let request = SlotRequest(
            secret: secret, cost: slot.kdf.cost ?? .standard, label: slot.label, expires: slot.expires,
            window: slot.window)
        // The clock must not be set back before the latest time of any slot, including the slots that are removed here.
        let latest = slots.map(\.created).reduce(created, max)
        let made = try KeySlot.make(id: slot.id, request: request, created: latest, masterKey: newMaster, head: head)
        let epoch = try KeyEpoch.make(
            number: number + 1, previousMaster: masterKey, master: newMaster, vault: vault, head: head)
        guard let opened = try epoch.openPrevious(master: newMaster, vault: vault, head: head),
            opened.hasSameBytes(as: masterKey)
        else { throw FormatError(.cryptography, "vaultfs.json: previous does not open") }
        let key = try KeyDerivation.configurationKey(master: newMaster, vault: vault)
        return ConfigurationChange(
            configuration: try next(slots: [made], epoch: epoch, key: key), made: made, secret: secret)
    }

    /// The last write of a rekey: the key of the epoch before goes.
    /// - Throws: `invalidValue` if no rekey is unfinished; `cryptography`.
    package func finishingEpoch(masterKey: SecretBytes) throws(FormatError) -> ConfigurationChange {
        guard let epoch, epoch.previous != nil else { throw FormatError(.invalidValue, "no rekey is unfinished") }
        let key = try KeyDerivation.configurationKey(master: masterKey, vault: vault)
        return ConfigurationChange(
            configuration: try next(slots: slots, epoch: KeyEpoch(number: epoch.number, previous: nil), key: key))
    }
}

/// The key of the epoch before, encrypted.
extension KeyEpoch {
    /// An epoch with `previousMaster`, the key of the epoch before, encrypted under `master`.
    fileprivate static func make(
        number: UInt8, previousMaster: SecretBytes, master: SecretBytes, vault: VaultID, head: String
    ) throws(FormatError) -> KeyEpoch {
        let (key, data) = (try KeyDerivation.previousKey(master: master, vault: vault), associatedData(number, head))
        let sealed = try cryptography(
            "vaultfs.json: previous", SivCipher(key: key).encryptSecret(previousMaster, associatedData: data))
        return KeyEpoch(number: number, previous: sealed)
    }

    /// The master key of the epoch before, if any.
    func openPrevious(master: SecretBytes, vault: VaultID, head: String) throws(FormatError) -> SecretBytes? {
        guard let previous else { return nil }
        let (key, data) = (
            try KeyDerivation.previousKey(master: master, vault: vault), Self.associatedData(number, head)
        )
        return try cryptography(
            "vaultfs.json: previous", SivCipher(key: key).decryptSecret(previous, associatedData: data))
    }

    private static func associatedData(_ number: UInt8, _ head: String) -> [[UInt8]] {
        [Array("\(head)previous \(number - 1)\n".utf8)]
    }
}
