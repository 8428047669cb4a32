internal import LinuxSystem
import VaultCrypto

/// One way to open the master key (FileFormat, Slots).
package struct KeySlot: Sendable, Equatable {
    /// The size of an encrypted master key, with the SIV's tag.
    static let sealedSize = 48

    package let id: Int
    package let kind: SlotKind
    /// Free text. It is authenticated only once a slot has opened, and may hold control characters.
    package internal(set) var label: String
    /// When the slot was made: `YYYY-MM-DDThh:mm:ssZ`.
    package let created: String
    /// The time from which the daemon refuses the slot, or nil: a policy, not cryptography.
    package let expires: String?
    package let kdf: KdfParameters
    /// SIV(KEK; head lines and slot line; master key), 48 bytes.
    package internal(set) var sealed: [UInt8] = []
    /// The time that the slot works from its first use on, or nil: a policy like `expires`.
    package var window: PlayWindow?

    /// Makes a slot in which `secret` opens `masterKey`. `head` is the configuration's head lines.
    static func make(
        id: Int, request: SlotRequest, created: String, masterKey: SecretBytes, head: String
    ) throws(FormatError) -> KeySlot {
        let salt = try cryptography("slot \(id): salt", SecureRandom.bytes(count: KdfParameters.saltSize))
        let kdf = KdfParameters(cost: request.secret.kind == .passphrase ? request.cost : nil, salt: salt)
        let kek = try kdf.keyEncryptionKey(from: request.secret)
        var slot = KeySlot(
            id: id, kind: request.secret.kind, label: request.label, created: created, expires: request.expires,
            kdf: kdf, window: request.window)
        slot.sealed = try cryptography(
            "slot \(id)", SivCipher(key: kek).encryptSecret(masterKey, associatedData: slot.associatedData(head)))
        return slot
    }

    /// Returns the master key, or nil if `secret` does not open this slot. Takes as long as the slot's key derivation.
    func open(with secret: SlotSecret, head: String) throws(FormatError) -> SecretBytes? {
        guard secret.kind == kind else { return nil }
        let kek = try kdf.keyEncryptionKey(from: secret)
        do throws(CryptoError) {
            return try SivCipher(key: kek).decryptSecret(sealed, associatedData: associatedData(head))
        } catch .doesNotAuthenticate {
            return nil
        } catch {
            throw FormatError(error, subject: "slot \(id)")
        }
    }

    /// The slot's known end, in seconds since 1970-01-01T00:00:00Z: the time of `expires` or the end of a started
    /// window, if that is earlier. Nil for never.
    package var end: Int64? { [expires.flatMap { UtcTime.seconds($0.utf8) }, window?.end].compactMap { $0 }.min() }

    package var isLimited: Bool { expires != nil || window != nil }

    /// Returns true if the slot is past its end at `now`, in seconds since 1970-01-01T00:00:00Z.
    package func isExpired(at now: Int64) -> Bool { end.map { $0 <= now } ?? false }

    /// The slot's line in the MAC's text, without its LF.
    var canonicalText: String {
        let labelText = label.isEmpty ? "-" : KdfParameters.text(Array(label.utf8))
        let head = "slot \(id) \(kind.rawValue) \(expires ?? "-") \(created) \(labelText)"
        return
            "\(head) \(kdf.canonicalText) \(KdfParameters.text(sealed))\(window.map { " " + $0.canonicalText } ?? "")"
    }

    private func associatedData(_ head: String) -> [[UInt8]] {
        [Array("\(head)slot \(id) \(kind.rawValue) \(expires ?? "-")\n".utf8)]
    }
}

/// The request for a new slot.
package struct SlotRequest: Sendable {
    package let secret: SlotSecret
    /// The cost of guessing a passphrase. Ignored for other kinds.
    package let cost: ScryptCost
    package let label: String
    /// `YYYY-MM-DDThh:mm:ssZ`, or nil for ever.
    package let expires: String?
    package let window: PlayWindow?

    package init(
        secret: SlotSecret, cost: ScryptCost = .standard, label: String = "", expires: String? = nil,
        window: PlayWindow? = nil
    ) {
        self.secret = secret
        self.cost = cost
        self.label = label
        self.expires = expires
        self.window = window
    }
}

/// The choice of slots for trying a secret. Bounds the total cost, because `vaultfs.json` may come from an attacker.
package struct SlotChoice: Sendable {
    /// Maximum sum of work for slots without the user's explicit permission. It suffices for 64 slots of the standard
    /// cost, or for 8 of the highest cost that vaultfs makes, and takes about half a minute.
    package static let maximumWork = 64 * ScryptCost.standard.work

    /// The id of the only slot to try. If nil, try all slots of the secret's kind, the cheapest first.
    package var only: Int?
    /// True to try every slot at any cost.
    package var allowsCostly = false
    /// The id of the slot to try first, at any cost.
    package var known: Int?

    package init(only: Int? = nil, allowsCostly: Bool = false, known: Int? = nil) {
        self.only = only
        self.allowsCostly = allowsCostly
        self.known = known
    }

    /// Returns the slots of one kind in the order of the tries, and the slots left out because of the bound.
    /// - Parameter isUsable: false for a slot that may not be used now. Such a slot is tried last, because the secret
    ///   may have a newer one.
    func order(
        _ slots: [KeySlot], kind: SlotKind, isUsable: (KeySlot) -> Bool
    ) -> (tried: [KeySlot], leftOut: [KeySlot]) {
        // The known slot may be tried at any cost.
        func work(_ slot: KeySlot) -> Int { slot.id == known ? -1 : slot.kdf.cost?.work ?? 0 }
        let candidates = slots.filter { $0.kind == kind && (only ?? $0.id) == $0.id }
            .sorted { (work($0), $0.id) < (work($1), $1.id) }
        var sum = 0
        let tried = candidates.prefix { slot in
            sum += max(0, work(slot))
            return sum <= Self.maximumWork || allowsCostly || only != nil
        }
        return (tried.filter(isUsable) + tried.filter { !isUsable($0) }, Array(candidates[tried.count...]))
    }
}
