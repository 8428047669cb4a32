internal import LinuxSystem
internal import StrictJSON
package import VaultCrypto

/// `vaultfs.json`: the vault's parameters, and the slots that open its master key (FileFormat, vaultfs.json).
///
/// Parsing checks only the form: until `unwrapMasterKey` has returned, everything here may be an attacker's.
package struct VaultConfiguration: Sendable, Equatable {
    package static let maximumSlotCount = 64
    private static let mostNamed = 8
    /// The feature of a vault in which a slot has a window. It may come and go while there are slots, so the head lines
    /// under which they are encrypted omit it.
    static let leasesFeature = "leases"
    static let epochsFeature = "epochs"

    package let vault: VaultID
    /// Plaintext bytes of a chunk: a power of two in 4096…1048576.
    package let chunkSize: Int
    /// Grows by one at every write of the file.
    package internal(set) var generation: UInt64
    package internal(set) var epoch: KeyEpoch?
    /// By rising id. 1…64 of them.
    package internal(set) var slots: [KeySlot]
    /// 32 bytes over everything above, under a key from the master key.
    package internal(set) var mac: [UInt8] = []

    /// Format features in use, sorted.
    package var features: [String] {
        (epoch == nil ? [] : [Self.epochsFeature]) + (slots.contains { $0.window != nil } ? [Self.leasesFeature] : [])
    }

    /// Makes a new vault's configuration: a random id, generation 1, and a slot for each request, with ids from 1.
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
        made.mac = try made.expectedMac(key: made.key(masterKey))
        return made
    }

    static func checkTimes(_ times: [String]) throws(FormatError) {
        for time in times where UtcTime.seconds(time.utf8) == nil {
            throw FormatError(.invalidValue, "'\(time)' is not a time YYYY-MM-DDThh:mm:ssZ")
        }
    }

    /// The key epochs that the vault's objects can have.
    package var epochs: KeyEpochs { epoch?.epochs ?? .first }

    package var isRekeying: Bool { epoch?.previous != nil }

    /// Returns the previous epoch's master key during an unfinished rekey. Throws `doesNotAuthenticate`.
    package func previousMasterKey(masterKey: SecretBytes) throws(FormatError) -> SecretBytes? {
        try epoch?.unwrapPrevious(master: masterKey, vault: vault, head: headLines)
    }

    /// Returns the next generation, with these slots and a new MAC.
    /// - Parameters:
    ///   - key: the configuration key.
    ///   - made: the new or changed slot, if any.
    ///   - secret: of a new slot.
    private func next(
        _ slots: [KeySlot], _ epoch: KeyEpoch?, key: SecretBytes, made: KeySlot? = nil, secret: SlotSecret? = nil
    ) throws(FormatError) -> ConfigurationChange {
        try require(generation < UInt64.max, .invalidValue, "vaultfs.json: no generation is left")
        var next = self
        next.generation += 1
        next.epoch = epoch
        next.slots = slots.sorted { $0.id < $1.id }
        next.mac = try next.expectedMac(key: key)
        return ConfigurationChange(configuration: next, made: made, secret: secret)
    }

    fileprivate func key(_ masterKey: SecretBytes) throws(FormatError) -> SecretBytes {
        try KeyDerivation.configurationKey(master: masterKey, vault: vault)
    }

    /// Tries `secret` on the slots of its kind, the cheapest first. Slots that may not be used at `now` come last,
    /// because the secret may have a newer slot. Returns nil if the secret opens no slot. Throws `doesNotAuthenticate`
    /// if it opens one but the MAC does not verify, because someone without a key has then changed the file. Throws
    /// `tooCostly` if it opens none of the tried slots, and others were left out.
    /// - Parameter onTry: called before each derivation.
    package func unwrapMasterKey(
        with secret: SlotSecret, at now: Int64 = .min, choice: SlotChoice = SlotChoice(),
        onTry: (KeySlot) -> Void = { _ in }
    ) throws(FormatError) -> (masterKey: SecretBytes, slot: KeySlot)? {
        let (tried, leftOut) = choice.order(slots, kind: secret.kind) { Lease($0, at: now).isUsable }
        for slot in tried {
            onTry(slot)
            guard let masterKey = try slot.open(with: secret, head: headLines) else { continue }
            try require(
                verifies(key(masterKey)), .doesNotAuthenticate, "vaultfs.json: changed without a secret")
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

    /// Returns the slots that `secret` opens, apart from the one with `id`, if any. Tries the same slots as
    /// `unwrapMasterKey`.
    /// - Throws: `cryptography`.
    package func slots(openedBy secret: SlotSecret, except id: Int? = nil) throws(FormatError) -> [KeySlot] {
        var opened: [KeySlot] = []
        let tried = SlotChoice().order(slots.filter { $0.id != id }, kind: secret.kind) { _ in true }.tried
        for slot in tried where try slot.open(with: secret, head: headLines) != nil { opened.append(slot) }
        return opened
    }

    /// Returns true if `masterKey` is this vault's and the MAC verifies under it.
    package func authenticates(masterKey: SecretBytes) -> Bool { (try? verifies(key(masterKey))) ?? false }

    /// Returns true if the MAC verifies under the vault's configuration key.
    package func authenticates(configurationKey: SecretBytes) -> Bool { (try? verifies(configurationKey)) ?? false }

    private func verifies(_ key: SecretBytes) throws(FormatError) -> Bool {
        equalInConstantTime(try expectedMac(key: key), mac)
    }

    private func expectedMac(key: SecretBytes) throws(FormatError) -> [UInt8] {
        let epochLines = epoch?.canonicalLines ?? []
        let lines = ["generation \(generation)"] + epochLines + slots.sorted { $0.id < $1.id }.map(\.canonicalText)
        let head = Self.headLines(vault: vault, chunkSize: chunkSize, features: features)
        let text = head + lines.map { $0 + "\n" }.joined()
        return try cryptography("vaultfs.json: mac", HmacSha256.authenticate(Array(text.utf8), key: key))
    }

    /// The lines under which each slot is encrypted. They omit later features, because existing slots could not adapt.
    var headLines: String {
        Self.headLines(vault: vault, chunkSize: chunkSize, features: epoch == nil ? [] : [Self.epochsFeature])
    }

    static func headLines(vault: VaultID, chunkSize: Int, features: [String]) -> String {
        let featureList = features.isEmpty ? "-" : features.sorted().joined(separator: ",")
        return "vaultfs 1\nvault \(vault.hex)\nchunk \(chunkSize)\nfeatures \(featureList)\n"
    }
}

extension VaultConfiguration {
    private typealias Members = JSONMembers<FormatError>

    /// The largest `vaultfs.json` read, in bytes. 64 slots take about 20 KiB.
    package static let maximumSize = 1 << 20
    private static let context = "vaultfs.json"

    /// Parses the bytes of a `vaultfs.json`, refusing anything that vaultfs would not write. Throws `newerVersion` for
    /// an unknown version, feature, slot kind or key derivation, `malformed` for the rest.
    package static func parse(_ bytes: [UInt8]) throws(FormatError) -> VaultConfiguration {
        var members = try Members(parsing: bytes, context: context, maximumSize: maximumSize)
        try require(
            try members.removeString("format") == Array("vaultfs".utf8), .malformed,
            "\(context): format is not vaultfs")
        // Check the version first, because in a newer one every other member may have another meaning.
        let version = try members.removeInteger("version")
        try require(version != 0, .malformed, "\(context): version 0")
        guard version == 1 else { throw newer("version \(version)") }
        let features = try parseFeatures(try members.removeArray("features"))

        let vaultText = try members.removeString("vault")
        guard let vault = VaultID(hex: vaultText) else {
            throw FormatError(.malformed, "\(context): vault '\(shown(vaultText))' is not 32 lower-case hex digits")
        }
        let chunkSize = try members.removeInteger("chunkSize", in: ChunkLayout.chunkSizes)
        try require(
            ChunkLayout.isValid(chunkSize: chunkSize), .malformed,
            "\(context): chunkSize \(chunkSize) is not a power of two")
        let generation = try members.removeInteger("generation")
        let epoch = features.contains(epochsFeature) ? try parseEpoch(&members) : nil
        let slots = try parseSlots(try members.removeArray("slots"), features: features)
        let configuration = VaultConfiguration(
            vault: vault, chunkSize: chunkSize, generation: generation, epoch: epoch, slots: slots,
            mac: try members.removeBytes("mac", count: 32))
        try members.refuseRest()
        try require(
            configuration.features == features, .malformed,
            "\(context): feature leases without a slot that has a window")
        return configuration
    }

    private static func parseFeatures(_ values: [StrictJSON]) throws(FormatError) -> [String] {
        var names: [[UInt8]] = []
        for value in values {
            guard case .string(let name) = value else {
                throw FormatError(.malformed, "\(context): features are not all strings")
            }
            names.append(name)
        }
        let known = [epochsFeature, leasesFeature]
        let unknown = names.filter { name in !known.contains { Array($0.utf8) == name } }
        guard unknown.isEmpty else {
            throw newer("features \(unknown.prefix(4).map { "'\(shown($0))'" }.joined(separator: ", "))")
        }
        try require(Set(names).count == names.count, .malformed, "\(context): a feature twice")
        return known.filter { names.contains(Array($0.utf8)) }
    }

    private static func parseEpoch(_ members: inout Members) throws(FormatError) -> KeyEpoch {
        let number = try members.removeInteger("epoch", in: 1...Int(KeyEpoch.maximum))
        let previous =
            try members.removeNull("previous")
            ? nil : try members.removeBytes("previous", count: KeySlot.sealedSize)
        return KeyEpoch(number: UInt8(number), previous: previous)
    }

    private static func parseSlots(_ values: [StrictJSON], features: [String]) throws(FormatError) -> [KeySlot] {
        try require(
            (1...maximumSlotCount).contains(values.count), .malformed,
            "\(context): \(values.count) slots are not in 1…\(maximumSlotCount)")
        var slots: [KeySlot] = []
        for (index, value) in values.enumerated() {
            var members = try Members(value, context: "\(context): slot at \(index)")
            let slot = try parseSlot(&members, mayHaveWindow: features.contains(leasesFeature))
            try require(
                !slots.contains(where: { $0.id == slot.id }), .malformed,
                "\(context): slot id \(slot.id) is not unique")
            slots.append(slot)
        }
        return slots.sorted { $0.id < $1.id }
    }

    private static func parseSlot(_ members: inout Members, mayHaveWindow: Bool) throws(FormatError) -> KeySlot {
        let id = try members.removeInteger("id", in: 0...Int.max)
        let kindText = try members.removeString("kind")
        guard let kind = SlotKind.allCases.first(where: { Array($0.rawValue.utf8) == kindText }) else {
            throw newer("slot kind '\(shown(kindText))'")
        }
        let expires = try members.removeOptionalTime("expires")
        let slot = KeySlot(
            id: id, kind: kind, label: String(decoding: try members.removeString("label"), as: UTF8.self),
            created: try members.removeTime("created"), expires: expires,
            kdf: try parseKdf(try members.remove("kdf"), kind: kind, context: "\(members.context): kdf"),
            sealed: try members.removeBytes("sealed", count: KeySlot.sealedSize),
            // Without the feature, leave the window to `refuseRest`, so it is refused as by older readers.
            window: mayHaveWindow ? try parseWindow(&members) : nil)
        try members.refuseRest()
        return slot
    }

    private static func parseWindow(_ slot: inout Members) throws(FormatError) -> PlayWindow? {
        guard slot.peek("window") != nil, try !slot.removeNull("window") else { return nil }
        var members = try Members(slot.remove("window"), context: "\(slot.context): window")
        let seconds = try members.removeInteger("seconds", in: PlayWindow.lengths)
        let (started, seen) = (try members.removeOptionalTime("started"), try members.removeOptionalTime("seen"))
        try members.refuseRest()
        switch (started, seen) {
        case (nil, nil): break
        case (let started?, let seen?) where started <= seen: break
        default: throw FormatError(.malformed, "\(members.context): started and seen do not go together")
        }
        return PlayWindow(seconds: seconds, started: started, seen: seen)
    }

    private static func parseKdf(
        _ value: StrictJSON, kind: SlotKind, context: String
    ) throws(FormatError) -> KdfParameters {
        var members = try Members(value, context: context)
        let name = try members.removeString("name")
        let cost: ScryptCost?
        switch (String(decoding: name, as: UTF8.self), kind) {
        case ("scrypt", .passphrase):
            let (logN, r, p) = (
                try members.removeInteger("logN", in: ScryptCost.logNRange),
                try members.removeInteger("r", in: ScryptCost.rRange),
                try members.removeInteger("p", in: ScryptCost.pRange)
            )
            do throws(FormatError) { cost = try ScryptCost(logN: logN, r: r, p: p) } catch {
                throw FormatError(.malformed, "\(context): \(error.reason)")
            }
        case ("hkdf-sha256", .keyfile), ("hkdf-sha256", .recovery):
            cost = nil
        case ("scrypt", _), ("hkdf-sha256", _):
            throw FormatError(.malformed, "\(context): '\(shown(name))' does not go with kind \(kind.rawValue)")
        default: throw newer("key derivation '\(shown(name))'")
        }
        let salt = try members.removeBytes("salt", count: KdfParameters.saltSize)
        try members.refuseRest()
        return KdfParameters(cost: cost, salt: salt)
    }

    private static func newer(_ what: String) -> FormatError {
        FormatError(.newerVersion, "\(context): \(what) is unknown: written by a newer version of vaultfs")
    }
}

extension JSONMembers where Failure == FormatError {
    /// Removes a valid time, and returns it as text.
    mutating func removeTime(_ key: String) throws(FormatError) -> String {
        let text = try removeString(key)
        try require(
            UtcTime.seconds(text) != nil, .malformed,
            "\(context): \(key) '\(shown(text))' is not a time YYYY-MM-DDThh:mm:ssZ")
        return String(decoding: text, as: UTF8.self)
    }

    /// Removes a valid time, and returns it as text, or nil if it is `null`.
    mutating func removeOptionalTime(_ key: String) throws(FormatError) -> String? {
        try removeNull(key) ? nil : removeTime(key)
    }

    /// Removes the value if it is `null`. Returns true then.
    mutating func removeNull(_ key: String) throws(FormatError) -> Bool {
        guard peek(key) == .null else { return false }
        return try remove(key) == .null
    }
}

extension VaultConfiguration {
    /// Returns the bytes of `vaultfs.json`: indented for people, and ending in LF. `parse` restores the same value.
    package func serialized() -> [UInt8] {
        let featureList = features.map(Self.quoted).joined(separator: ", ")
        let text = """
            {
              "format": "vaultfs",
              "version": 1,
              "vault": "\(vault.hex)",
              "chunkSize": \(chunkSize),
              "features": [\(featureList)],
              "generation": \(generation),\(epoch.map(Self.text) ?? "")
              "slots": [
            \(slots.map(Self.text).joined(separator: ",\n"))
              ],
              "mac": "\(KdfParameters.text(mac))"
            }

            """
        return Array(text.utf8)
    }

    private static func text(of epoch: KeyEpoch) -> String {
        let previous = epoch.previous.map { quoted(KdfParameters.text($0)) } ?? "null"
        return """

              "epoch": \(epoch.number),
              "previous": \(previous),
            """
    }

    private static func text(of slot: KeySlot) -> String {
        """
            {
              "id": \(slot.id),
              "kind": "\(slot.kind.rawValue)",
              "label": \(quoted(slot.label)),
              "created": "\(slot.created)",
              "expires": \(slot.expires.map(quoted) ?? "null"),
              "kdf": { \(text(of: slot.kdf)) },
              "sealed": "\(KdfParameters.text(slot.sealed))"\(slot.window.map(text) ?? "")
            }
        """
    }

    private static func text(of window: PlayWindow) -> String {
        let (started, seen) = (window.started.map(quoted) ?? "null", window.seen.map(quoted) ?? "null")
        return """
            ,
                  "window": { "seconds": \(window.seconds), "started": \(started), "seen": \(seen) }
            """
    }

    private static func text(of kdf: KdfParameters) -> String {
        let name = kdf.cost.map { #""scrypt", "logN": \#($0.logN), "r": \#($0.r), "p": \#($0.p)"# } ?? #""hkdf-sha256""#
        return #""name": \#(name), "salt": "\#(KdfParameters.text(kdf.salt))""#
    }

    /// Returns a JSON string. Escapes only quotes, backslashes and control characters.
    private static func quoted(_ string: String) -> String {
        var result = "\""
        for scalar in string.unicodeScalars {
            switch scalar {
            case "\"", "\\": result += "\\\(scalar)"
            case "\u{0}"..<"\u{20}", "\u{7F}"..<"\u{A0}": result += "\\u00\(Hexadecimal.encode([UInt8(scalar.value)]))"
            default: result.unicodeScalars.append(scalar)
            }
        }
        return result + "\""
    }
}

/// A changed configuration, not yet written.
package struct ConfigurationChange: Sendable {
    package let configuration: VaultConfiguration
    /// The new or changed slot, if any.
    package let made: KeySlot?
    /// The secret of a new slot.
    let secret: SlotSecret?

    /// Returns the bytes of the new `vaultfs.json`, after checking that they parse to this configuration, its MAC
    /// verifies, and the new secret opens the master key. Takes as long as the new slot's key derivation. Throws
    /// `invalidValue` if the file would be larger than the format allows.
    package func checkedBytes(masterKey: SecretBytes) throws(FormatError) -> [UInt8] {
        let bytes = try checkedBytes(configurationKey: configuration.key(masterKey))
        guard let made, let secret else { return bytes }
        guard let opened = try configuration.slot(made.id)?.open(with: secret, head: configuration.headLines),
            opened.hasSameBytes(as: masterKey)
        else { throw FormatError(.cryptography, "slot \(made.id): the new secret does not open it") }
        return bytes
    }

    /// Returns the same bytes, without trying the secret on the slot.
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

/// Changes of slots and of the key epoch. `created` is a time `YYYY-MM-DDThh:mm:ssZ`. Making a slot takes as long as
/// its key derivation.
extension VaultConfiguration {
    package func slot(_ id: Int) -> KeySlot? { slots.first { $0.id == id } }

    /// Adds a slot in which the request's secret opens the master key. Throws `invalidValue` if all slots are in use.
    package func adding(
        _ request: SlotRequest, created: String, masterKey: SecretBytes
    ) throws(FormatError) -> ConfigurationChange {
        try require(
            slots.count < Self.maximumSlotCount, .invalidValue,
            "the vault has \(slots.count) slots, and there is no room for more")
        return try changed(keeping: slots, making: request, id: unusedID, created, masterKey)
    }

    /// Replaces the slot `id` by a new one with the same id. Throws `invalidValue` if there is no such slot.
    package func replacingSlot(
        _ id: Int, by request: SlotRequest, created: String, masterKey: SecretBytes
    ) throws(FormatError) -> ConfigurationChange {
        try require(slot(id) != nil, .invalidValue, "there is no slot \(id)")
        return try changed(keeping: slots.filter { $0.id != id }, making: request, id: id, created, masterKey)
    }

    /// Removes the slots of these ids. Throws `invalidValue` for the last slot, because the format requires one.
    package func removingSlots(_ ids: Set<Int>, masterKey: SecretBytes) throws(FormatError) -> ConfigurationChange {
        let slots = slots.filter { !ids.contains($0.id) }
        try require(!slots.isEmpty, .invalidValue, "a vault has at least one slot")
        return try next(slots, epoch, key: key(masterKey))
    }

    /// Replaces all slots by one with a random, forgotten secret, because the format requires a slot.
    /// - Throws: `cryptography`; `keyForgotten`.
    package func removingAllSlots(created: String, masterKey: SecretBytes) throws(FormatError) -> ConfigurationChange {
        let key = try cryptography("slot \(unusedID)", SecretBytes.random(count: RecoveryKey.size))
        let request = SlotRequest(secret: try SlotSecret(kind: .recovery, bytes: key), label: "nothing opens this slot")
        return try changed(keeping: [], making: request, id: unusedID, created, masterKey)
    }

    /// Sets or, with nil, removes the window of the slot `id`, and changes its label unless `label` is nil. Needs
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
        return try next(slots, epoch, key: configurationKey, made: slots[index])
    }

    /// An id that, as far as the current slots show, no earlier slot has had.
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
        return try next(kept + [made], epoch, key: key(masterKey), made: made, secret: request.secret)
    }

    /// Makes the first write of a rekey: the next epoch under `newMaster`, with `slot` as the only one, encrypted again
    /// with the secret that opened it. Takes as long as its key derivation. Throws `invalidValue` if a rekey is
    /// unfinished or no epoch is left.
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
        // Include the removed slots: setting the clock back before the latest time of any slot must gain nothing.
        let latest = slots.map(\.created).reduce(created, max)
        let made = try KeySlot.make(id: slot.id, request: request, created: latest, masterKey: newMaster, head: head)
        let epoch = try KeyEpoch.make(
            number: number + 1, previousMaster: masterKey, master: newMaster, vault: vault, head: head)
        guard let opened = try epoch.unwrapPrevious(master: newMaster, vault: vault, head: head),
            opened.hasSameBytes(as: masterKey)
        else { throw FormatError(.cryptography, "vaultfs.json: previous does not open") }
        return try next([made], epoch, key: key(newMaster), made: made, secret: secret)
    }

    /// Makes the last write of a rekey, which removes the previous epoch's key.
    /// - Throws: `invalidValue` if no rekey is unfinished; `cryptography`.
    package func finishingEpoch(masterKey: SecretBytes) throws(FormatError) -> ConfigurationChange {
        guard let epoch, epoch.previous != nil else { throw FormatError(.invalidValue, "no rekey is unfinished") }
        return try next(slots, KeyEpoch(number: epoch.number, previous: nil), key: key(masterKey))
    }
}

extension KeyEpoch {
    /// Makes an epoch with `previousMaster`, the previous epoch's key, encrypted under `master`.
    fileprivate static func make(
        number: UInt8, previousMaster: SecretBytes, master: SecretBytes, vault: VaultID, head: String
    ) throws(FormatError) -> KeyEpoch {
        let (key, data) = (try KeyDerivation.previousKey(master: master, vault: vault), associatedData(number, head))
        let sealed = try cryptography(
            "vaultfs.json: previous", SivCipher(key: key).encryptSecret(previousMaster, associatedData: data))
        return KeyEpoch(number: number, previous: sealed)
    }

    /// Returns the previous epoch's master key, if any.
    func unwrapPrevious(master: SecretBytes, vault: VaultID, head: String) throws(FormatError) -> SecretBytes? {
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
