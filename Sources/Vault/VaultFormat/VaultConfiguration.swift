internal import LinuxSystem
package import VaultCrypto

/// `vaultfs.json`: the vault's parameters, and the slots that open its master key (FileFormat, vaultfs.json).
///
/// Parsed, it is well-formed and no more: until `openMasterKey` has returned, everything in it may be an attacker's.
package struct VaultConfiguration: Sendable, Equatable {
    /// The most slots a vault has.
    package static let maximumSlotCount = 64
    /// The most slots that a message names.
    private static let mostNamed = 8
    /// The feature of a vault in which a slot has a window. Late: it may come and go while there are slots, so it is
    /// left out of the head lines that they are sealed with.
    static let leasesFeature = "leases"
    /// The feature of a vault that was rekeyed.
    static let epochsFeature = "epochs"

    package let vault: VaultID
    /// Plaintext bytes of a chunk: a power of two in 4096…1048576.
    package let chunkSize: Int
    /// Grows by one at every write of the file.
    package internal(set) var generation: UInt64
    /// Nil in a vault that was never rekeyed.
    package internal(set) var epoch: KeyEpoch?
    /// By rising id. 1…64 of them.
    package internal(set) var slots: [KeySlot]
    /// 32 bytes over everything above, under a key from the master key.
    package internal(set) var mac: [UInt8] = []

    /// Format features in use, sorted.
    package var features: [String] {
        (epoch == nil ? [] : [Self.epochsFeature]) + (slots.contains { $0.window != nil } ? [Self.leasesFeature] : [])
    }

    /// A new vault's configuration: a random id, generation 1, and a slot for each request, with ids from 1.
    /// `masterKey` has 32 bytes; `created` is a time `YYYY-MM-DDThh:mm:ssZ`. Throws `invalidValue` for anything outside
    /// the format's bounds. Takes as long as the slots' key derivations.
    package static func make(
        chunkSize: Int, masterKey: SecretBytes, slots requests: [SlotRequest], created: String
    ) throws(FormatError) -> VaultConfiguration {
        try require(
            ChunkLayout.isValid(chunkSize: chunkSize), .invalidValue,
            "chunk size \(chunkSize) is not a power of two in 4096…1048576")
        try require(
            masterKey.count == KeyDerivation.secretSize, .invalidValue, "master key of \(masterKey.count) bytes")
        try require(
            (1...maximumSlotCount).contains(requests.count), .invalidValue,
            "\(requests.count) slots are not in 1…\(maximumSlotCount)")
        try checkTimes([created] + requests.compactMap(\.expires))
        let vault = try VaultID.random()
        let head = headLines(vault: vault, chunkSize: chunkSize, features: [])
        let slots = try zip(1..., requests).map { (id, request) throws(FormatError) in
            try KeySlot.make(id: id, request: request, created: created, masterKey: masterKey, head: head)
        }
        var made = VaultConfiguration(vault: vault, chunkSize: chunkSize, generation: 1, slots: slots)
        made.mac = try made.expectedMac(key: KeyDerivation.configurationKey(master: masterKey, vault: vault))
        return made
    }

    static func checkTimes(_ times: [String]) throws(FormatError) {
        for time in times where UtcTime.seconds(time.utf8) == nil {
            throw FormatError(.invalidValue, "'\(time)' is not a time YYYY-MM-DDThh:mm:ssZ")
        }
    }

    /// The key epochs that the vault's objects may be of.
    package var epochs: KeyEpochs { epoch?.epochs ?? .first }

    /// True if a rekey was begun and is not finished.
    package var isRekeying: Bool { epoch?.previous != nil }

    /// The master key of the epoch before, while a rekey is unfinished. Throws `doesNotAuthenticate`.
    package func previousMasterKey(masterKey: SecretBytes) throws(FormatError) -> SecretBytes? {
        try epoch?.openPrevious(master: masterKey, vault: vault, head: headLines)
    }

    /// The next generation, with other slots, under a MAC of its own.
    func next(slots: [KeySlot], epoch: KeyEpoch?, key: SecretBytes) throws(FormatError) -> VaultConfiguration {
        try require(generation < UInt64.max, .invalidValue, "vaultfs.json: no generation is left")
        var next = self
        next.generation += 1
        next.epoch = epoch
        next.slots = slots.sorted { $0.id < $1.id }
        next.mac = try next.expectedMac(key: key)
        return next
    }

    /// Tries `secret` on the slots of its kind, the cheapest first. Slots that may not be used at `now` are tried
    /// last, because the secret may have a newer slot. Returns nil if the secret opens no slot. Throws
    /// `doesNotAuthenticate` if it opens one but the MAC does not verify. Then someone without a key has changed the
    /// file. Throws `tooCostly` if it opens none of the slots that were tried, and others were left out.
    /// - Parameter onTry: called before each derivation.
    package func openMasterKey(
        with secret: SlotSecret, at now: Int64 = .min, choice: SlotChoice = SlotChoice(),
        onTry: (KeySlot) -> Void = { _ in }
    ) throws(FormatError) -> (masterKey: SecretBytes, slot: KeySlot)? {
        let (tried, leftOut) = choice.order(slots, kind: secret.kind) { Lease($0, at: now).isUsable }
        for slot in tried {
            onTry(slot)
            guard let masterKey = try slot.open(with: secret, head: headLines) else { continue }
            try require(
                verifies(masterKey: masterKey), .doesNotAuthenticate,
                "vaultfs.json: changed without a secret")
            return (masterKey, slot)
        }
        guard !leftOut.isEmpty else { return nil }
        let (named, more) = (leftOut.prefix(Self.mostNamed).map { "\($0.id)" }, leftOut.count - Self.mostNamed)
        let trying =
            "trying \(leftOut.count == 1 ? "slot" : "slots") \(named.joined(separator: ", "))"
            + "\(more > 0 ? " and \(more) more" : "") takes too long"
        throw FormatError(
            .tooCostly,
            tried.isEmpty ? trying : "the \(secret.kind.rawValue) opens none of \(tried.count) slots, and \(trying)")
    }

    /// The slots that `secret` opens, apart from the one of an id, if there is one. Tries the same slots as `openMasterKey`.
    /// - Throws: `cryptography`.
    package func slots(openedBy secret: SlotSecret, except id: Int? = nil) throws(FormatError) -> [KeySlot] {
        var opened: [KeySlot] = []
        let tried = SlotChoice().order(slots.filter { $0.id != id }, kind: secret.kind) { _ in true }.tried
        for slot in tried where try slot.open(with: secret, head: headLines) != nil { opened.append(slot) }
        return opened
    }

    /// True if `masterKey` is this vault's and the MAC verifies under it.
    package func authenticates(masterKey: SecretBytes) -> Bool { (try? verifies(masterKey: masterKey)) ?? false }

    /// True if the MAC verifies under the vault's configuration key.
    package func authenticates(configurationKey: SecretBytes) -> Bool {
        (try? equalInConstantTime(expectedMac(key: configurationKey), mac)) ?? false
    }

    private func verifies(masterKey: SecretBytes) throws(FormatError) -> Bool {
        equalInConstantTime(try expectedMac(key: KeyDerivation.configurationKey(master: masterKey, vault: vault)), mac)
    }

    private func expectedMac(key: SecretBytes) throws(FormatError) -> [UInt8] {
        let epochLines = epoch?.canonicalLines ?? []
        let lines = ["generation \(generation)"] + epochLines + slots.sorted { $0.id < $1.id }.map(\.canonicalText)
        let head = Self.headLines(vault: vault, chunkSize: chunkSize, features: features)
        let text = head + lines.map { $0 + "\n" }.joined()
        return try cryptography("vaultfs.json: mac", HmacSha256.authenticate(Array(text.utf8), key: key))
    }

    /// The lines that each slot is encrypted with. They leave out later features: existing slots could not follow
    /// those.
    var headLines: String {
        Self.headLines(vault: vault, chunkSize: chunkSize, features: epoch == nil ? [] : [Self.epochsFeature])
    }

    static func headLines(vault: VaultID, chunkSize: Int, features: [String]) -> String {
        let featureList = features.isEmpty ? "-" : features.sorted().joined(separator: ",")
        return "vaultfs 1\nvault \(vault.hex)\nchunk \(chunkSize)\nfeatures \(featureList)\n"
    }
}
