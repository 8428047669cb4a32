internal import LinuxSystem
internal import SystemPackage
internal import VaultCare
internal import VaultFormat

/// The output of `rekey`: see ``WorkReport``.
final class RekeyReport {
    /// The interface of `--json`, through the names of its fields.
    private struct Summary: Encodable {
        let vaultPath: String
        let epoch: Int
        let finished: Bool
        let files, directories, links: Int
        let bytes: UInt64
        let seconds: Double
        /// Entries foreign to the vault.
        let foreign: Int
        /// Objects with other names outside the vault.
        let elsewhere: Int
        /// Objects still under the old key.
        let left: Int
        let problems: [WorkReport.Problem]
        let removedSlots: [SlotReport]
    }

    let work: WorkReport
    private let vault: FilePath
    private var removedSlots: [SlotReport] = []

    init(vault: FilePath, isJSON: Bool) {
        self.vault = vault
        work = WorkReport(vault, isJSON: isJSON)
    }

    /// Names the slots to be removed, and the kept one.
    func announce(_ slots: [KeySlot], keeping kept: KeySlot) {
        removedSlots = slots.map(SlotReport.init)
        for report in removedSlots { Console.report("slot \(report.id) goes: \(report.text)") }
        if !slots.isEmpty { Console.report("slot \(kept.id) stays: \(SlotReport(kept).text)") }
    }

    func finish(_ outcome: RekeyOutcome, epoch: UInt8) throws(CommandFailure) {
        work.clear()
        let totals = outcome.totals
        guard work.isJSON else { return try Console.write(text(outcome) + "\n") }
        let summary = Summary(
            vaultPath: vault.string, epoch: Int(epoch), finished: outcome.isFinished, files: totals.files,
            directories: totals.directories, links: totals.links, bytes: totals.bytes, seconds: work.seconds,
            foreign: totals.foreign, elsewhere: totals.elsewhere, left: totals.problems, problems: work.problems,
            removedSlots: removedSlots)
        try Console.write(Console.json(summary))
    }

    private func text(_ outcome: RekeyOutcome) -> String {
        let totals = outcome.totals
        let amount = WorkReport.text(
            [
                (totals.files, "file", nil), (totals.directories, "directory", "directories"),
                (totals.links, "link", nil),
            ], bytes: totals.bytes, seconds: work.seconds)
        let end = outcome.isFinished ? "nothing is left under the old key" : "the rekey is not finished"
        let slots =
            outcome.isFinished && !removedSlots.isEmpty
            ? "\nTo add the removed slots again: vaultfs slot add \(vault.quotedForShell)" : ""
        let copies = outcome.isFinished ? "\nCopies of the old vaultfs.json are of no use here: make a new one." : ""
        let elsewhere =
            totals.elsewhere == 0
            ? ""
            : "\n\(AmountText.counted(totals.elsewhere, "object")) had a name outside of the vault too, as in a copy of hard "
                + "links: what that leads to is under the old key."
        return "Rekeyed \(amount): \(end)." + elsewhere + slots + copies
    }

    func failure(_ outcome: RekeyOutcome) -> CommandFailure {
        guard outcome.totals.problems > 0 else {
            return CommandFailure(.failure, "\(vault.shown): something is still under the old key: run it again")
        }
        let left = AmountText.counted(outcome.totals.problems, "object")
        if outcome.totals.denied == outcome.totals.problems {
            return CommandFailure(
                .incomplete,
                "\(vault.shown): \(left) under the old key still, to which access was denied: allow it with 'chmod', then "
                    + "rekey again")
        }
        return CommandFailure(
            .damageFound,
            "\(vault.shown): \(left) under the old key still: undo what denies a change of it, repair damage with 'vaultfs "
                + "verify --repair', or save with 'vaultfs export --damaged' and delete, then rekey again")
    }
}

extension WorkProgress.Amount {
    init(_ totals: RekeyTotals) {
        self.init(
            files: totals.files, bytes: totals.bytes, total: (totals.expectedFiles, totals.expectedBytes))
    }
}
