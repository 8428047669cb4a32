internal import LinuxSystem
internal import VaultFormat
internal import VaultStore

/// A slot in the output of `info` and `slot`. `--json` has the names of the fields.
struct SlotReport: Encodable {
    let id: Int
    let kind, label, created: String
    let expires: String?
    let keyDerivation: String
    let window: WindowReport?
    private let isExpired: Bool

    private enum CodingKeys: CodingKey {
        case id, kind, label, created, expires, keyDerivation, window
    }

    init(_ slot: KeySlot) {
        let now = UtcTime.secondsSinceEpoch()
        id = slot.id
        kind = slot.kind.rawValue
        label = slot.label
        created = slot.created
        expires = slot.expires
        keyDerivation = slot.kdf.cost.map(Self.text) ?? "hkdf-sha256"
        window = slot.window.map { WindowReport($0, at: now) }
        isExpired = slot.isExpired(at: now)
    }

    /// `passphrase 'at home'`
    private var name: String { kind + (label.isEmpty ? "" : " '\(label.escapedForTerminal)'") }

    /// `passphrase 'at home', made 2026-11-20T12:00:00Z, scrypt N=2^17 r=8 p=1`
    var text: String {
        let expires = expires.map { (isExpired ? ", expired " : ", expires ") + $0 } ?? (isExpired ? ", expired" : "")
        let window = window.map { ", " + $0.text } ?? ""
        return "\(name), made \(created)\(expires)\(window), \(keyDerivation)"
    }

    /// Prints a line for each slot of a vault. `info` and `slot list` have the same lines.
    static func print(_ slots: [SlotReport]) {
        for slot in slots { Console.printField("slot \(slot.id)", slot.text) }
    }

    /// `slot 1`, `slots 1, 3`
    static func names(_ slots: [KeySlot]) -> String {
        let ids = slots.map(\.id).sorted().map { "\($0)" }.joined(separator: ", ")
        return (slots.count == 1 ? "slot " : "slots ") + ids
    }

    /// `1 (passphrase 'at home'), 2 (recovery)`
    static func list(_ slots: [KeySlot]) -> String {
        slots.map { "\($0.id) (\(SlotReport($0).name))" }.joined(separator: ", ")
    }

    static func text(_ cost: ScryptCost) -> String { "scrypt N=2^\(cost.logN) r=\(cost.r) p=\(cost.p)" }
}

/// A play window in the output of `info` and `slot`. `--json` has the names of the fields.
struct WindowReport: Encodable {
    let seconds: Int
    let started, seen, ends: String?
    let remainingSeconds: Int64

    /// - Parameter now: seconds since 1970-01-01T00:00:00Z.
    init(_ window: PlayWindow, at now: Int64) {
        seconds = window.seconds
        started = window.started
        seen = window.seen
        ends = window.end.map(UtcTime.text(secondsSinceEpoch:))
        // Limit the time to the window, which setting the clock back must not lengthen.
        remainingSeconds = min(Int64(window.seconds), max(0, window.end.map { $0 - now } ?? Int64(window.seconds)))
    }

    /// `play window of 48 h 0 min, started 2026-11-20T12:00:00Z, 12 min left`
    var text: String {
        let length = "play window of \(AmountText.short(seconds: Int64(seconds)))"
        guard let started else { return length + ", not started" }
        let left = remainingSeconds > 0 ? AmountText.short(seconds: remainingSeconds) : "nothing"
        return "\(length), started \(started), \(left) left"
    }
}

/// The output of `slot add` and `slot change`.
struct NewSlotReport: Encodable {
    let slot: SlotReport
    let recoveryKey: String?

    /// Makes a slot and prints it, with progress on a terminal. Prints a recovery key before the slot is in place, so
    /// that a failed output leaves no slot with an unknown key.
    /// - Parameters:
    ///   - verb: "Added", "Changed".
    ///   - make: calls the function with the slot before it puts the slot in place.
    static func print(
        _ verb: String, isJSON: Bool, recoveryKey: String? = nil,
        _ make: ((KeySlot) throws(VaultError) -> Void) throws(VaultError) -> KeySlot
    ) throws {
        let progress = ProgressLine()
        defer { progress.clear() }
        progress.show(["deriving keys …"])
        func json(_ slot: KeySlot) throws(CommandFailure) -> String {
            try Console.json(NewSlotReport(slot: SlotReport(slot), recoveryKey: recoveryKey))
        }
        let slot = try make { (slot) throws(VaultError) in
            guard let recoveryKey else { return }
            progress.clear()
            do throws(CommandFailure) {
                try Console.write(isJSON ? json(slot) : RecoveryKeyText.shown(recoveryKey) + "\n\n")
            } catch {
                throw .refused("no slot was made: the recovery key cannot be shown: \(error.message)")
            }
        }
        progress.clear()
        if !isJSON { return Console.confirm("\(verb) slot \(slot.id): \(SlotReport(slot).text).") }
        if recoveryKey == nil { try Console.write(json(slot)) }
    }
}
