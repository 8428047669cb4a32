package import VaultCrypto

extension VaultConfiguration {
    /// The slot of this id.
    package func slot(_ id: Int) -> KeySlot? { slots.first { $0.id == id } }

    /// With one slot more, in which the request's secret opens the master key. Takes as long as its key derivation.
    ///
    /// `created` is a time `YYYY-MM-DDThh:mm:ssZ`. Throws `invalidValue` if there is no room for another slot.
    package func adding(
        _ request: SlotRequest, created: String, masterKey: SecretBytes
    ) throws(FormatError) -> SlotChange {
        guard slots.count < Self.maximumSlotCount else {
            throw FormatError(.invalidValue, "the vault has \(slots.count) slots, and there is no room for more")
        }
        let slot = try makeSlot(id: unusedID, request, created: created, masterKey: masterKey)
        return SlotChange(
            configuration: try replacing(slots: slots + [slot], masterKey: masterKey), made: slot,
            secret: request.secret)
    }

    /// With a new slot of the id `id` in the place of the one that has it. Takes as long as its key derivation.
    ///
    /// Throws `invalidValue` if there is no such slot.
    package func replacingSlot(
        _ id: Int, by request: SlotRequest, created: String, masterKey: SecretBytes
    ) throws(FormatError) -> SlotChange {
        guard slots.contains(where: { $0.id == id }) else { throw FormatError(.invalidValue, "there is no slot \(id)") }
        let slot = try makeSlot(id: id, request, created: created, masterKey: masterKey)
        let slots = slots.map { $0.id == id ? slot : $0 }
        return SlotChange(
            configuration: try replacing(slots: slots, masterKey: masterKey), made: slot, secret: request.secret)
    }

    /// Without the slots of these ids. Throws `invalidValue` if none would be left: the format has no such vault.
    package func removingSlots(_ ids: Set<Int>, masterKey: SecretBytes) throws(FormatError) -> SlotChange {
        let slots = slots.filter { !ids.contains($0.id) }
        guard !slots.isEmpty else { throw FormatError(.invalidValue, "a vault has at least one slot") }
        return SlotChange(
            configuration: try replacing(slots: slots, masterKey: masterKey), made: nil, secret: nil)
    }

    /// With one slot alone, which nothing opens: its secret is drawn and forgotten. The format has no vault without
    /// slots.
    package func removingAllSlots(created: String, masterKey: SecretBytes) throws(FormatError) -> SlotChange {
        let key = try cryptography("slot \(unusedID)") { () throws(CryptoError) in
            try SecretBytes.random(count: RecoveryKey.size)
        }
        let request = SlotRequest(secret: try SlotSecret(kind: .recovery, bytes: key), label: "nothing opens this slot")
        let slot = try makeSlot(id: unusedID, request, created: created, masterKey: masterKey)
        return SlotChange(
            configuration: try replacing(slots: [slot], masterKey: masterKey), made: slot, secret: request.secret)
    }

    /// With another window for the slot of this id. Nil removes it. Needs neither its secret nor the master key.
    ///
    /// Throws `invalidValue` if there is no such slot.
    package func settingWindow(
        of id: Int, to window: PlayWindow?, configurationKey: SecretBytes
    ) throws(FormatError) -> SlotChange {
        guard slot(id) != nil else { throw FormatError(.invalidValue, "there is no slot \(id)") }
        let slots = slots.map { slot in
            var slot = slot
            if slot.id == id { slot.window = window }
            return slot
        }
        return SlotChange(
            configuration: try replacing(slots: slots, key: configurationKey), made: nil, secret: nil)
    }

    /// Not that of a slot removed before, as far as can be seen.
    private var unusedID: Int {
        let highest = slots.map(\.id).max() ?? 0
        if highest < Int.max { return highest + 1 }
        let used = Set(slots.map(\.id))
        return (1...Self.maximumSlotCount + 1).first { !used.contains($0) } ?? 0
    }

    private func makeSlot(
        id: Int, _ request: SlotRequest, created: String, masterKey: SecretBytes
    ) throws(FormatError) -> KeySlot {
        try Self.checkTimes([created] + [request.expires].compactMap { $0 })
        return try KeySlot.make(id: id, request: request, created: created, masterKey: masterKey, head: headLines)
    }

    private func replacing(slots: [KeySlot], masterKey: SecretBytes) throws(FormatError) -> VaultConfiguration {
        try replacing(slots: slots, key: try KeyDerivation.configurationKey(master: masterKey, vault: vault))
    }

    /// The next generation, with other slots, under a MAC of its own.
    private func replacing(slots: [KeySlot], key: SecretBytes) throws(FormatError) -> VaultConfiguration {
        guard generation < UInt64.max else { throw FormatError(.invalidValue, "vaultfs.json: no generation is left") }
        return try VaultConfiguration(
            vault: vault, chunkSize: chunkSize, features: Self.features(of: slots, epoch: epoch),
            generation: generation + 1, epoch: epoch, slots: slots.sorted { $0.id < $1.id }, mac: []
        ).signed(configurationKey: key)
    }
}
