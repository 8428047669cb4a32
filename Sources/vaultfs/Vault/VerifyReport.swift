internal import FileSystem
internal import FoundationEssentials
internal import LinuxSystem
internal import SystemPackage
internal import VaultStore

/// The output of `verify`: each finding at once, because there can be millions, and then the summary.
final class VerifyReport {
    /// The names of the fields are the interface of `--json`. Invalid UTF-8 in `path` is repaired. `backingPath`, below
    /// the vault directory, identifies the object.
    private struct Finding: Encodable {
        let kind: String
        let path: String
        let backingPath: String
        let attribute: String?
        let offset: UInt64?
        let count: UInt64?
        let message: String
        let remedy: String?

        init(_ finding: VerifierFinding) {
            kind = finding.kind.rawValue
            path = String(decoding: finding.path, as: UTF8.self)
            backingPath = String(decoding: finding.backingPath, as: UTF8.self)
            attribute = finding.attribute.map { String(decoding: $0, as: UTF8.self) }
            offset = finding.plaintextOffset
            count = finding.plaintextCount
            message = finding.message
            remedy = finding.remedy?.rawValue
        }
    }

    /// A remedy; `reason` is there if it failed.
    private struct Repair: Encodable {
        let remedy: String
        let path: String
        let backingPath: String
        let message: String
        let reason: String?

        init(_ finding: VerifierFinding, _ remedy: Remedy, reason: String?) {
            self.remedy = remedy.rawValue
            path = String(decoding: finding.path, as: UTF8.self)
            backingPath = String(decoding: finding.backingPath, as: UTF8.self)
            message = remedy.explanation
            self.reason = reason
        }
    }

    private let vault: FilePath
    private let isJSON: Bool
    private var progress = WorkProgress()
    private let encoder = JSONEncoder()
    /// The number of findings in the current JSON list.
    private var findings = 0
    private var announced: [(VerifierFinding, Remedy)] = []
    /// The number of objects that changed during every check.
    private(set) var uncertain = 0
    /// The number of failed repairs.
    private(set) var failures = 0

    init(vault: FilePath, isJSON: Bool) {
        self.vault = vault
        self.isJSON = isJSON
        encoder.outputFormatting = [.sortedKeys, .withoutEscapingSlashes]
        if isJSON { print("{\n  \"findings\" : [", terminator: "") }
    }

    func add(_ finding: VerifierFinding) {
        progress.clear()
        if isJSON {
            print(findings == 0 ? "\n    " : ",\n    ", terminator: "")
            print(encoded(Finding(finding)), terminator: "")
        } else {
            print(Self.line(finding))
        }
        findings += 1
        if finding.kind == .busy { uncertain += 1 }
    }

    func showProgress(_ totals: VerifierTotals) {
        progress.show { Self.text(totals, seconds: $0) }
    }

    /// `120 files  9.0 GiB  1.2 GiB/s  0 damaged`
    static func text(_ totals: VerifierTotals, seconds: Double) -> String {
        let amount = WorkProgress.Amount(files: Int(clamping: totals.files), bytes: totals.bytes)
        return WorkProgress.text(amount, seconds: seconds) + "  \(totals.damage) damaged"
    }

    /// Ends the findings of the first check.
    func endFindings(_ totals: VerifierTotals) {
        end("summary", totals)
    }

    /// Prints the remedy of a finding.
    func announce(_ finding: VerifierFinding) {
        guard let remedy = finding.remedy else { return }
        announced.append((finding, remedy))
        if !isJSON {
            print("repair: \(Self.shownPath(finding)): \(remedy.explanation)")
        }
    }

    func showProgress(_ done: Int, of count: Int) {
        progress.show { _ in "\(done) of \(AmountText.counted(count, "repair"))" }
    }

    /// Reports the repairs and their failures. If repairs were made, the findings that are left follow.
    func endRepairs(done: Bool, failures: [Repairer.Failure]) {
        progress.clear()
        self.failures = failures.count
        if isJSON {
            let repairs = announced.map { finding, remedy in
                Repair(finding, remedy, reason: failures.first { $0.finding == finding }?.reason)
            }
            print("  \"repaired\" : \(done),\n  \"repairs\" : \(encoded(repairs)),")
            if done { print("  \"left\" : [", terminator: "") }
            findings = 0
            return
        }
        for failure in failures { print("not repaired: \(Self.shownPath(failure.finding)): \(failure.reason)") }
        if !done && !announced.isEmpty { print("nothing was changed") }
        if done { print("verified again:") }
    }

    /// Ends the findings of the check after the repairs.
    func endLeft(_ totals: VerifierTotals) {
        end("leftSummary", totals)
    }

    private func end(_ name: String, _ totals: VerifierTotals) {
        progress.clear()
        if isJSON {
            print(findings == 0 ? "]," : "\n  ],")
            print("  \"\(name)\" : \(encoded(totals)),")
        } else {
            printSummary(totals)
        }
    }

    func finish(isRekeying: Bool) {
        if isJSON {
            print("  \"rekeyUnfinished\" : \(isRekeying),\n  \"vaultPath\" : \(encoded(vault.string))\n}")
        } else if isRekeying {
            print("a rekey is unfinished: run 'vaultfs rekey' again")
        }
    }

    private func printSummary(_ totals: VerifierTotals) {
        let objects = [
            AmountText.counted(totals.directories, "directory", "directories"),
            AmountText.counted(totals.files, "file"),
            AmountText.counted(totals.links, "link"), AmountText.counted(totals.attributes, "attribute"),
        ]
        print(
            "checked \(objects.joined(separator: ", ")), \(AmountText.bytes(Double(totals.bytes))) "
                + "in \(AmountText.counted(Int(clamping: totals.chunks), "chunk")): "
                + (totals.damage == 0
                    ? Self.cleanText(uncertain) : AmountText.counted(totals.damage, "finding") + " of damage")
                + (totals.notes == 0 ? "" : ", " + AmountText.counted(totals.notes, "note")))
    }

    private static func cleanText(_ uncertain: Int) -> String {
        uncertain == 0 ? "no damage" : "no damage in the objects that could be checked"
    }

    /// Encoding does not fail: the values hold only strings and integers.
    private func encoded(_ value: some Encodable) -> String {
        (try? encoder.encode(value)).map { String(decoding: $0, as: UTF8.self) } ?? "null"
    }

    /// `damaged: Documents/a.txt: at byte 4096: chunk 1: tag does not verify`
    private static func line(_ finding: VerifierFinding) -> String {
        let attribute = finding.attribute.map { ": attribute \(FilePath(bytes: $0).shown)" } ?? ""
        let offset = finding.plaintextOffset.map { ": at byte \($0)" } ?? ""
        return "\(label(finding.kind)): \(shownPath(finding))\(attribute)\(offset): \(finding.message)"
    }

    private static func shownPath(_ finding: VerifierFinding) -> String {
        finding.path.isEmpty ? "." : FilePath(bytes: finding.path).shown
    }

    private static func label(_ kind: VerifierFinding.Kind) -> String {
        switch kind {
        case .hiddenName: "hidden name"
        case .unprovenTail: "unproven tail"
        default: kind.rawValue
        }
    }
}
