internal import SystemPackage
internal import VaultFormat
internal import VaultStore

/// What `slot add` and `slot change` print.
struct NewSlotReport {
    /// What `--json` prints.
    private struct Report: Encodable {
        let slot: SlotReport
        let recoveryKey: String?
    }

    /// "Added", "Changed".
    let what: String
    let isJSON: Bool
    let recoveryKey: String?
    private let progress = ProgressLine()

    init(what: String, isJSON: Bool, recoveryKey: String?) {
        self.what = what
        self.isJSON = isJSON
        self.recoveryKey = recoveryKey
    }

    /// Says on a terminal that this takes a while.
    func whileDeriving<Result>(_ body: () throws(VaultError) -> Result) throws(VaultError) -> Result {
        progress.show("deriving keys …")
        defer { progress.clear() }
        return try body()
    }

    /// Prints the recovery key while the slot can still be given up: one that was made, and whose key could not be written
    /// out, would be lost.
    func showRecoveryKey(of slot: KeySlot) throws(VaultError) {
        guard let recoveryKey else { return }
        progress.clear()
        do throws(CommandFailure) {
            try Console.write(isJSON ? json(slot) : RecoveryKeyText.shown(recoveryKey) + "\n\n")
        } catch {
            throw .slotRefused("nothing was changed: the recovery key cannot be shown: \(error.message)")
        }
    }

    func finish(_ slot: KeySlot) throws(CommandFailure) {
        if isJSON {
            if recoveryKey == nil { try Console.write(json(slot)) }
        } else {
            print("\(what) slot \(slot.id): \(SlotReport(slot).text).")
        }
    }

    private func json(_ slot: KeySlot) throws(CommandFailure) -> String {
        try Console.json(Report(slot: SlotReport(slot), recoveryKey: recoveryKey))
    }
}
