internal import LinuxSystem
import VaultCrypto

/// One way to open the master key (FileFormat, Slots).
package struct KeySlot: Sendable, Equatable {
    /// The size of `sealed`: the SIV's tag and the master key.
    static let sealedSize = 48

    /// Unique in the vault.
    package let id: Int
    package let kind: SlotKind
    /// Free text. It is authenticated only once a slot has opened, and may hold control characters.
    package let label: String
    /// When the slot was made: `YYYY-MM-DDThh:mm:ssZ`.
    package let created: String
    /// From when the daemon refuses the slot, or nil: a policy, not cryptography.
    package let expires: String?
    package let kdf: KdfParameters
    /// SIV(KEK; head lines and slot line; master key), 48 bytes.
    package internal(set) var sealed: [UInt8] = []
    /// How long the slot opens from its first use on, or nil: a policy like `expires`.
    package var window: PlayWindow?

    /// A slot in which `secret` opens `masterKey`. `head` is the configuration's head lines.
    static func make(
        id: Int, request: SlotRequest, created: String, masterKey: SecretBytes, head: String
    ) throws(FormatError) -> KeySlot {
        let salt = try cryptography("slot \(id): salt", SecureRandom.bytes(count: KdfParameters.saltSize))
        let kdf: KdfParameters =
            request.secret.kind == .passphrase ? .scrypt(request.cost, salt: salt) : .hkdfSha256(salt: salt)
        let kek = try kdf.keyEncryptionKey(from: request.secret)
        var slot = KeySlot(
            id: id, kind: request.secret.kind, label: request.label, created: created, expires: request.expires,
            kdf: kdf, window: request.window)
        slot.sealed = try cryptography(
            "slot \(id)", SivCipher(key: kek).encryptSecret(masterKey, associatedData: slot.associatedData(head)))
        return slot
    }

    /// The master key if `secret` opens this slot, nil if not. Takes as long as the slot's key derivation.
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

    /// The end of the slot as far as it is known now, in seconds since 1970-01-01T00:00:00Z. Nil for never. The
    /// time of `expires`, or the end of a window that has started.
    package var end: Int64? { [expires.flatMap { UtcTime.seconds($0.utf8) }, window?.end].compactMap { $0 }.min() }

    /// True if the slot has an end.
    package var isLimited: Bool { expires != nil || window != nil }

    /// True if the slot is past its end at `now`, in seconds since 1970-01-01T00:00:00Z.
    package func isExpired(at now: Int64) -> Bool { end.map { $0 <= now } ?? false }

    /// The slot's line in the MAC's text, without its LF.
    var canonicalText: String {
        let labelText = label.isEmpty ? "-" : KdfParameters.text(Array(label.utf8))
        let head = "slot \(id) \(kind.rawValue) \(expires ?? "-") \(created) \(labelText)"
        let windowText = window.map { " " + $0.canonicalText } ?? ""
        return "\(head) \(kdf.canonicalText) \(KdfParameters.text(sealed))\(windowText)"
    }

    private func associatedData(_ head: String) -> [[UInt8]] {
        [Array("\(head)slot \(id) \(kind.rawValue) \(expires ?? "-")\n".utf8)]
    }
}

/// The request for a new slot.
package struct SlotRequest: Sendable {
    package let secret: SlotSecret
    /// The cost of guessing a passphrase. Other kinds ignore it.
    package let cost: ScryptCost
    package let label: String
    /// `YYYY-MM-DDThh:mm:ssZ`, or nil for ever.
    package let expires: String?
    /// A window for the slot, or nil.
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
