internal import FileSystem
internal import LinuxSystem
internal import Synchronization
internal import SystemPackage
internal import VaultFormat
internal import VaultStore

/// What `rekey` says: what it leaves on stderr when it meets it, progress, a summary. Any thread.
final class RekeyReport: Sendable {
    private struct Problem: Encodable {
        let path: String
        let message: String
    }

    /// What `--json` prints; the names of the fields are its interface.
    private struct Summary: Encodable {
        let vaultPath: String
        let epoch: Int
        let finished: Bool
        let files: Int
        let directories: Int
        let links: Int
        let bytes: UInt64
        let seconds: Double
        /// Entries that are not the vault's.
        let foreign: Int
        /// Objects with names outside of the vault.
        let elsewhere: Int
        /// Objects that stay under the old key.
        let left: Int
        let problems: [Problem]
        let removedSlots: [SlotReport]
    }

    private struct State {
        var progress = RekeyProgress()
        var problems: [Problem] = []
        var removed: [SlotReport] = []
    }

    /// How many problems are in the JSON.
    private static let kept = 1000

    private let vault: FilePath
    private let isJSON: Bool
    private let started = ContinuousClock.now
    private let state = Mutex(State())

    init(vault: FilePath, isJSON: Bool) {
        self.vault = vault
        self.isJSON = isJSON
    }

    func goOn() {
        Console.report("\(vault.shown): a rekey was begun before, and goes on")
    }

    /// Names the slots that go.
    func announce(_ slots: [KeySlot], keeping kept: KeySlot) {
        let reports = slots.map(SlotReport.init)
        for report in reports { Console.report("slot \(report.id) goes: \(report.text)") }
        if !slots.isEmpty { Console.report("slot \(kept.id) stays: \(SlotReport(kept).text)") }
        state.withLock { $0.removed = reports }
    }

    func add(_ path: [UInt8], _ reason: String) {
        state.withLock { state in
            state.progress.clear()
            let shown = path.isEmpty ? vault.shown : FilePath(bytes: path).shown
            Console.report("\(shown): stays under the old key: \(reason)")
            guard isJSON, state.problems.count < Self.kept else { return }
            state.problems.append(Problem(path: String(decoding: path, as: UTF8.self), message: reason))
        }
    }

    func showProgress(_ totals: RekeyTotals, of survey: RekeySurvey) {
        state.withLock { $0.progress.show(totals, of: survey) }
    }

    func clear() {
        state.withLock { $0.progress.clear() }
    }

    /// Prints the summary.
    func finish(_ outcome: RekeyOutcome, epoch: UInt8) throws(CommandFailure) {
        clear()
        let totals = outcome.totals
        let seconds = (ContinuousClock.now - started) / .seconds(1)
        let (problems, removed) = state.withLock { ($0.problems, $0.removed) }
        guard isJSON else { return try Console.write(text(outcome, seconds, removed) + "\n") }
        let summary = Summary(
            vaultPath: vault.string, epoch: Int(epoch), finished: outcome.isFinished, files: totals.files,
            directories: totals.directories, links: totals.links, bytes: totals.bytes, seconds: seconds,
            foreign: totals.foreign, elsewhere: totals.elsewhere, left: totals.problems, problems: problems,
            removedSlots: removed)
        try Console.write(Console.json(summary))
    }

    private func text(_ outcome: RekeyOutcome, _ seconds: Double, _ removed: [SlotReport]) -> String {
        let totals = outcome.totals
        let objects = [
            AmountText.counted(totals.files, "file"),
            AmountText.counted(totals.directories, "directory", "directories"),
            AmountText.counted(totals.links, "link"),
        ]
        let rate = seconds > 0 ? ", \(AmountText.bytes(Double(totals.bytes) / seconds))/s" : ""
        let end = outcome.isFinished ? "nothing is left under the old key" : "the rekey is not finished"
        let slots =
            outcome.isFinished && !removed.isEmpty ? "\nSlots that went are added again with 'vaultfs slot add'." : ""
        let copies = outcome.isFinished ? "\nCopies of the old vaultfs.json are of no use here: make a new one." : ""
        let elsewhere =
            totals.elsewhere == 0
            ? ""
            : "\n\(AmountText.counted(totals.elsewhere, "object")) had a name outside of the vault too, as in a copy of hard "
                + "links: what that leads to is under the old key."
        return "Rekeyed \(objects.joined(separator: ", ")), \(AmountText.bytes(Double(totals.bytes)))\(rate): \(end)."
            + elsewhere + slots + copies
    }

    /// Why the command fails where the rekey is not finished.
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
