internal import BackingStore
internal import FoundationEssentials
internal import SystemPackage
internal import VaultStore

/// What `verify` prints: each finding when it is made, for there may be millions, then the summary.
final class VerifyReport {
    /// The names of the fields are the interface of `--json`. `path` has invalid UTF-8 repaired; `backingPath`, below
    /// the vault directory, says exactly which object is meant.
    private struct Finding: Encodable {
        let kind: String
        let path: String
        let backingPath: String
        let attribute: String?
        let offset: UInt64?
        let count: UInt64?
        let message: String

        init(_ finding: VerifierFinding) {
            kind = finding.kind.rawValue
            path = String(decoding: finding.path, as: UTF8.self)
            backingPath = String(decoding: finding.backingPath, as: UTF8.self)
            attribute = finding.attribute.map { String(decoding: $0, as: UTF8.self) }
            offset = finding.plaintextOffset
            count = finding.plaintextCount
            message = finding.message
        }
    }

    private static let progressInterval: Duration = .milliseconds(200)

    private let vault: FilePath
    private let isJSON: Bool
    private let progress = ProgressLine()
    private let started = ContinuousClock.now
    private var nextProgress = ContinuousClock.now
    private let encoder = JSONEncoder()
    private var findings = 0

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
    }

    func showProgress(_ totals: VerifierTotals) {
        guard progress.isShown, ContinuousClock.now >= nextProgress else { return }
        nextProgress = ContinuousClock.now + Self.progressInterval
        let seconds = (ContinuousClock.now - started) / .seconds(1)
        let rate = seconds > 0 ? Double(totals.bytes) / seconds : 0
        progress.show(
            "\(AmountText.counted(totals.files, "file")), \(AmountText.bytes(Double(totals.bytes))), \(AmountText.bytes(rate))/s, "
                + "\(totals.damage) damaged")
    }

    func finish(_ totals: VerifierTotals) {
        progress.clear()
        if isJSON {
            print(findings == 0 ? "]," : "\n  ],")
            print("  \"summary\" : \(encoded(totals)),")
            print("  \"vaultPath\" : \(encoded(vault.string))\n}")
        } else {
            printSummary(totals)
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
                + (totals.damage == 0 ? "no damage" : AmountText.counted(totals.damage, "finding") + " of damage")
                + (totals.notes == 0 ? "" : ", " + AmountText.counted(totals.notes, "note")))
    }

    /// What is encoded holds nothing that JSON cannot say.
    private func encoded(_ value: some Encodable) -> String {
        (try? encoder.encode(value)).map { String(decoding: $0, as: UTF8.self) } ?? "null"
    }

    /// `damaged: Documents/a.txt: at byte 4096: chunk 1: tag does not verify`
    private static func line(_ finding: VerifierFinding) -> String {
        let path = finding.path.isEmpty ? "." : FilePath(bytes: finding.path).shown
        let attribute = finding.attribute.map { ": attribute \(FilePath(bytes: $0).shown)" } ?? ""
        let offset = finding.plaintextOffset.map { ": at byte \($0)" } ?? ""
        return "\(label(finding.kind)): \(path)\(attribute)\(offset): \(finding.message)"
    }

    private static func label(_ kind: VerifierFinding.Kind) -> String {
        switch kind {
        case .hiddenName: "hidden name"
        case .unprovenTail: "unproven tail"
        default: kind.rawValue
        }
    }
}
