internal import LinuxSystem
internal import StrictJSON

extension VaultConfiguration {
    private typealias Members = JSONMembers<FormatError>

    /// The largest `vaultfs.json` read, in bytes. 64 slots take about 20 KiB.
    package static let maximumSize = 1 << 20
    private static let context = "vaultfs.json"

    /// Reads the bytes of a `vaultfs.json`, refusing anything that the format does not write.
    /// Throws `newerVersion` for an unknown version, feature, slot kind or key derivation, `malformed` for the rest.
    package static func parse(_ bytes: [UInt8]) throws(FormatError) -> VaultConfiguration {
        var members = try Members(parsing: bytes, context: context, maximumSize: maximumSize)
        try require(
            try members.removeString("format") == Array("vaultfs".utf8), .malformed,
            "\(context): format is not vaultfs")
        // Before anything else is judged: a newer version may mean anything by it.
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
        guard members.peek("previous") == .null else {
            return KeyEpoch(
                number: UInt8(number), previous: try members.removeBytes("previous", count: KeyEpoch.sealedSize))
        }
        _ = try members.remove("previous")
        return KeyEpoch(number: UInt8(number), previous: nil)
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
            // Without the feature it is an unknown key, as for readers that know no windows.
            window: mayHaveWindow ? try parseWindow(&members) : nil)
        try members.refuseRest()
        return slot
    }

    private static func parseWindow(_ slot: inout Members) throws(FormatError) -> PlayWindow? {
        guard slot.peek("window") != nil else { return nil }
        let value = try slot.remove("window")
        if value == .null { return nil }
        var members = try Members(value, context: "\(slot.context): window")
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
        let kdf: KdfParameters
        switch (String(decoding: name, as: UTF8.self), kind) {
        case ("scrypt", .passphrase):
            let (logN, r, p) = (
                try members.removeInteger("logN", in: ScryptCost.logNRange),
                try members.removeInteger("r", in: ScryptCost.rRange),
                try members.removeInteger("p", in: ScryptCost.pRange)
            )
            let salt = try members.removeBytes("salt", count: KdfParameters.saltSize)
            do throws(FormatError) { kdf = .scrypt(try ScryptCost(logN: logN, r: r, p: p), salt: salt) } catch {
                throw FormatError(.malformed, "\(context): \(error.reason)")
            }
        case ("hkdf-sha256", .keyfile), ("hkdf-sha256", .recovery):
            kdf = .hkdfSha256(salt: try members.removeBytes("salt", count: KdfParameters.saltSize))
        case ("scrypt", _), ("hkdf-sha256", _):
            throw FormatError(.malformed, "\(context): '\(shown(name))' does not go with kind \(kind.rawValue)")
        default: throw newer("key derivation '\(shown(name))'")
        }
        try members.refuseRest()
        return kdf
    }

    private static func newer(_ what: String) -> FormatError {
        FormatError(.newerVersion, "\(context): \(what) is unknown: written by a newer version of vaultfs")
    }
}

extension JSONMembers where Failure == FormatError {
    /// A valid time, as text.
    mutating func removeTime(_ key: String) throws(FormatError) -> String {
        let text = try removeString(key)
        try require(
            UtcTime.seconds(text) != nil, .malformed,
            "\(context): \(key) '\(shown(text))' is not a time YYYY-MM-DDThh:mm:ssZ")
        return String(decoding: text, as: UTF8.self)
    }

    /// A valid time, as text, or nil if it is `null`.
    mutating func removeOptionalTime(_ key: String) throws(FormatError) -> String? {
        guard peek(key) == .null else { return try removeTime(key) }
        _ = try remove(key)
        return nil
    }
}
