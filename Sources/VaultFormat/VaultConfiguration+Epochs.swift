package import VaultCrypto

extension VaultConfiguration {
    /// The first write of a rekey: the next epoch under `newMaster`, with one slot alone, `slot` encrypted again with
    /// the secret that opened it. Takes as long as its key derivation.
    ///
    /// `created` is a time `YYYY-MM-DDThh:mm:ssZ`. Throws `invalidValue` if a rekey is unfinished or no epoch is left.
    package func beginningEpoch(
        keeping slot: KeySlot, secret: SlotSecret, created: String, masterKey: SecretBytes, newMaster: SecretBytes
    ) throws(FormatError) -> SlotChange {
        guard !isRekeying else { throw FormatError(.invalidValue, "a rekey is unfinished") }
        let number = epoch?.number ?? 0
        guard number < KeyEpoch.maximum else {
            throw FormatError(.invalidValue, "the vault was rekeyed \(number) times, and has no key epoch left")
        }
        guard generation < UInt64.max else { throw FormatError(.invalidValue, "vaultfs.json: no generation is left") }
        let head = Self.headLines(vault: vault, chunkSize: chunkSize, features: [Self.epochsFeature])
        let request = SlotRequest(
            secret: secret, cost: slot.kdf.cost ?? .standard, label: slot.label, expires: slot.expires,
            window: slot.window)
        // The clock must not be set back behind the latest time of any slot, including the slots that are removed here.
        let latest = slots.map(\.created).reduce(created, max)
        let made = try KeySlot.make(id: slot.id, request: request, created: latest, masterKey: newMaster, head: head)
        let epoch = try KeyEpoch.make(
            number: number + 1, previousMaster: masterKey, master: newMaster, vault: vault, head: head)
        guard let opened = try epoch.openPrevious(master: newMaster, vault: vault, head: head),
            opened.hasSameBytes(as: masterKey)
        else { throw FormatError(.cryptography, "vaultfs.json: previous does not open") }
        let configuration = try VaultConfiguration(
            vault: vault, chunkSize: chunkSize, features: Self.features(of: [made], epoch: epoch),
            generation: generation + 1, epoch: epoch, slots: [made], mac: []
        ).signed(configurationKey: KeyDerivation.configurationKey(master: newMaster, vault: vault))
        return SlotChange(configuration: configuration, made: made, secret: secret)
    }

    /// The last write of a rekey: the key of the epoch before goes.
    package func finishingEpoch(masterKey: SecretBytes) throws(FormatError) -> SlotChange {
        guard let epoch, epoch.previous != nil else { throw FormatError(.invalidValue, "no rekey is unfinished") }
        guard generation < UInt64.max else { throw FormatError(.invalidValue, "vaultfs.json: no generation is left") }
        let configuration = try VaultConfiguration(
            vault: vault, chunkSize: chunkSize, features: features, generation: generation + 1,
            epoch: KeyEpoch(number: epoch.number, previous: nil), slots: slots, mac: []
        ).signed(configurationKey: KeyDerivation.configurationKey(master: masterKey, vault: vault))
        return SlotChange(configuration: configuration, made: nil, secret: nil)
    }
}
