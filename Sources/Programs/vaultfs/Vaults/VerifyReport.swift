internal import FoundationEssentials
internal import LinuxSystem
internal import SystemPackage
internal import VaultCare

/// The output of `verify`: each finding at once, because millions are possible, and then the summary.
final class VerifyReport {
    /// The interface of `--json`, through the names of its fields. Invalid UTF-8 in `path` is repaired. `backingPath`,
    /// below the vault directory, identifies the object.
    private struct Finding: Encodable {
        var kind: String?
        let path, backingPath: String
        var attribute: String?
        var offset, count: UInt64?
        let message: String
        let remedy: String?
        /// The reason for which a repair failed.
        var reason: String?

        init(_ finding: VerifierFinding) {
            self.init(finding, message: finding.message)
            kind = finding.kind.rawValue
            attribute = finding.attribute.map { String(decoding: $0, as: UTF8.self) }
            offset = finding.plaintextOffset
            count = finding.plaintextCount
        }

        /// Makes the fields of a repair. The caller may add a reason.
        init(_ finding: VerifierFinding, message: String) {
            path = String(decoding: finding.path, as: UTF8.self)
            backingPath = String(decoding: finding.backingPath, as: UTF8.self)
            self.message = message
            remedy = finding.remedy?.rawValue
        }
    }

    private let vault: FilePath
    private let isJSON: Bool
    private let isVerbose: Bool
    private var progress = WorkProgress()
    private let encoder = JSONEncoder()
    /// The number of findings in the current JSON list.
    private var findingCount = 0
    /// The number of objects that changed during every check.
    private(set) var uncertain = 0
    /// The number of other programs' objects.
    private(set) var foreign = 0
    /// The number of damaged objects in the last check that `--repair` can repair.
    private(set) var remediable = 0
    /// The number of unsealed files in the current check, and the first one. They get one line.
    private var unsealed: (count: Int, first: VerifierFinding)?
    private let unsealedReason: String
    /// The number of failed repairs.
    private(set) var failures = 0

    /// - Parameter unsealedReason: follows the number of unsealed files.
    init(vault: FilePath, isJSON: Bool, isVerbose: Bool, unsealedReason: String) {
        self.unsealedReason = unsealedReason
        self.vault = vault
        self.isJSON = isJSON
        self.isVerbose = isVerbose
        encoder.outputFormatting = [.sortedKeys, .withoutEscapingSlashes]
        if isJSON { print("{\n  \"findings\" : [", terminator: "") }
    }

    func add(_ finding: VerifierFinding) {
        progress.clear()
        if isJSON {
            print(findingCount == 0 ? "\n    " : ",\n    ", terminator: "")
            print(encoded(Finding(finding)), terminator: "")
        } else if finding.kind == .unsealed && !isVerbose {
            unsealed = ((unsealed?.count ?? 0) + 1, unsealed?.first ?? finding)
        } else {
            print(Self.line(finding))
        }
        findingCount += 1
        if finding.kind == .busy { uncertain += 1 }
        if finding.kind == .foreign { foreign += 1 }
        if !finding.kind.isNote && finding.remedy != nil { remediable += 1 }
    }

    func showProgress(_ totals: VerifierTotals) { progress.show { Self.parts(totals, seconds: $0) } }

    /// Returns `120 files`, `0 damaged`, `9.0 GiB`, `1.2 GiB/s`.
    static func parts(_ totals: VerifierTotals, seconds: Double) -> [String] {
        let amount = WorkProgress.Amount(files: Int(clamping: totals.files), bytes: totals.bytes)
        var parts = WorkProgress.parts(amount, seconds: seconds)
        parts.insert("\(totals.damage) damaged", at: 1)
        return parts
    }

    /// Prints the remedy of a finding.
    func announce(_ finding: VerifierFinding) {
        guard let remedy = finding.remedy else { return }
        if !isJSON { print("repair: \(Self.shownPath(finding)): \(remedy.explanation)") }
    }

    func showProgress(_ done: Int, of count: Int) {
        progress.show { _ in ["\(done) of \(AmountText.counted(count, "repair"))"] }
    }

    /// Reports the repairs and their failures. After repairs, the remaining findings follow.
    func endRepairs(of findings: [VerifierFinding], done: Bool, failures: [Repairer.Failure]) {
        progress.clear()
        self.failures = failures.count
        if done { remediable = 0 }
        foreign = 0
        if isJSON {
            let repairs = findings.map { finding in
                var repair = Finding(finding, message: finding.remedy?.explanation ?? "")
                repair.reason = failures.first { $0.finding == finding }?.reason
                return repair
            }
            print("  \"repaired\" : \(done),\n  \"repairs\" : \(encoded(repairs)),")
            if done { print("  \"left\" : [", terminator: "") }
            findingCount = 0
            return
        }
        for failure in failures { print("not repaired: \(Self.shownPath(failure.finding)): \(failure.reason)") }
        if !done && !findings.isEmpty { print("nothing was changed") }
        if done { print("verified again:") }
    }

    /// Ends the findings of a check.
    /// - Parameter name: the name of the totals in JSON.
    func end(_ name: String, _ totals: VerifierTotals) {
        progress.clear()
        if isJSON {
            print(findingCount == 0 ? "]," : "\n  ],")
            print("  \"\(name)\" : \(encoded(totals)),")
            return
        }
        if let (count, first) = unsealed {
            let reason = "\(unsealedReason): their lengths cannot be checked (--verbose lists them)"
            print(count == 1 ? Self.line(first) : "unsealed: \(count) files\(reason)")
        }
        unsealed = nil
        let objects = [
            AmountText.counted(totals.directories, "directory", "directories"),
            AmountText.counted(totals.files, "file"),
            AmountText.counted(totals.links, "link"), AmountText.counted(totals.attributes, "attribute"),
        ]
        Console.confirm(
            "checked \(objects.joined(separator: ", ")), \(AmountText.bytes(Double(totals.bytes))) "
                + "in \(AmountText.counted(Int(clamping: totals.chunks), "chunk")): "
                + (totals.damage == 0
                    ? "no damage" + (uncertain == 0 ? "" : " in the objects that could be checked")
                    : AmountText.counted(totals.damage, "finding") + " of damage")
                + (totals.notes == 0 ? "" : ", " + AmountText.counted(totals.notes, "note")))
    }

    func finish(isRekeying: Bool) {
        if isJSON {
            print("  \"rekeyUnfinished\" : \(isRekeying),\n  \"vaultPath\" : \(encoded(vault.string))\n}")
        } else if isRekeying {
            print("a rekey is unfinished: run 'vaultfs rekey' again")
        }
    }

    /// Encodes a value. That cannot fail, because the values have only strings and integers.
    private func encoded(_ value: some Encodable) -> String {
        (try? encoder.encode(value)).map { String(decoding: $0, as: UTF8.self) } ?? "null"
    }

    /// `damaged: Documents/a.txt: at byte 4096: chunk 1: its data is damaged`
    private static func line(_ finding: VerifierFinding) -> String {
        let attribute = finding.attribute.map { ": attribute \(FilePath(bytes: $0).shown)" } ?? ""
        let offset = finding.plaintextOffset.map { ": at byte \($0)" } ?? ""
        return
            "\(FieldText.words(finding.kind.rawValue)): \(shownPath(finding))\(attribute)\(offset): \(finding.message)"
    }

    private static func shownPath(_ finding: VerifierFinding) -> String {
        finding.path.isEmpty ? "." : FilePath(bytes: finding.path).shown
    }
}
