internal import FileSystem
internal import LinuxSystem
internal import Synchronization
internal import SystemPackage
internal import Transfer

/// The output of `import` and `export`: see ``WorkReport``. Any thread.
final class TransferReport: Sendable {
    private struct Damage: Encodable, Sendable {
        struct Piece: Encodable, Sendable {
            let offset: UInt64
            let count: UInt64
        }

        let path: String
        let ranges: [Piece]
        let message: String
    }

    /// The names of the fields are the interface of `--json`.
    private struct Summary: Encodable {
        struct NotKept: Encodable {
            let owners: Int
            let modes: Int
            let times: Int
            let attributes: Int
            let devices: Int
        }

        let source: String
        let destination: String
        /// The view's format. This field and the next two are there for a view only.
        let view: String?
        let links: Int?
        let bytesBefore: UInt64?
        let files: Int
        let directories: Int
        let symbolicLinks: Int
        let hardLinks: Int
        let specialFiles: Int
        let present: Int
        let bytes: UInt64
        let bytesPresent: UInt64
        /// Without those of comparing.
        let seconds: Double
        let notKept: NotKept
        /// Nil if nothing was compared.
        let verified: Int?
        let different: Int
        let failed: Int
        /// The first.
        let failures: [WorkReport.Problem]
        let damaged: Int
        /// The first.
        let damage: [Damage]
    }

    /// The number of ranges that a line shows.
    private static let shownRanges = 8

    let work: WorkReport
    private let source: FilePath
    private let view: String?
    private let damage = Mutex<[Damage]>([])
    private let singleFile = Atomic<Bool>(false)

    /// - Parameters:
    ///   - source: as it was typed.
    ///   - view: the format's name.
    init(source: FilePath, view: String? = nil, isJSON: Bool) {
        self.source = source
        self.view = view
        work = WorkReport(source, isJSON: isJSON)
    }

    /// True if one file is transferred. Its failure is the command's only message.
    var isSingleFile: Bool {
        get { singleFile.load(ordering: .relaxed) }
        set { singleFile.store(newValue, ordering: .relaxed) }
    }

    /// - Parameter path: below the source.
    func addFailure(_ path: [UInt8], _ message: String) {
        if isSingleFile { work.keep(path, message) } else { work.add(path, message) }
    }

    /// - Parameters:
    ///   - path: below the source.
    ///   - ranges: none if nothing of the file verifies.
    func addDamage(_ path: [UInt8], _ ranges: [Range<UInt64>], _ message: String) {
        let listed = ranges.prefix(Self.shownRanges).map { "\($0.lowerBound)-\($0.upperBound - 1)" }
        let more = ranges.count > listed.count ? " and \(ranges.count - listed.count) more ranges" : ""
        let bytes = ranges.isEmpty ? "" : "bytes " + listed.joined(separator: ", ") + more + ": "
        work.print(path, "damaged: \(bytes)\(message)")
        damage.withLock { damage in
            guard damage.count < WorkReport.kept else { return }
            damage.append(
                Damage(
                    path: String(decoding: path, as: UTF8.self),
                    ranges: ranges.map { .init(offset: $0.lowerBound, count: UInt64($0.count)) }, message: message))
        }
    }

    func showProgress(_ totals: TransferTotals, of survey: TransferSurvey) {
        work.showProgress(Self.amount(totals, of: survey.result))
    }

    static func amount(_ totals: TransferTotals, of total: (files: Int, bytes: UInt64)?) -> WorkProgress.Amount {
        WorkProgress.Amount(
            files: totals.objects, bytes: totals.bytes, total: total, filesPresent: totals.present,
            bytesPresent: totals.bytesPresent)
    }

    /// Prints the summary.
    /// - Parameters:
    ///   - verb: `imported`, `exported`.
    ///   - compared: of the comparison that followed.
    /// - Throws: if something failed, is damaged or could not be kept.
    func finish(
        _ verb: String, to destination: FilePath, _ totals: TransferTotals, compared: TransferTotals?
    ) throws(CommandFailure) {
        work.clear()
        let problem = Self.problem(totals, compared)
        let failure = isSingleFile ? work.problems.first : nil
        if work.isJSON {
            try Console.printJSON(summary(destination, totals, compared))
        } else if failure == nil {
            print(Self.text(verb, totals, compared, seconds: work.seconds))
        }
        guard let problem else { return }
        throw CommandFailure(problem.code, "\(source.shown): \(failure?.message ?? problem.message)")
    }

    private func summary(_ destination: FilePath, _ totals: TransferTotals, _ compared: TransferTotals?) -> Summary {
        let lost = totals.lost
        return Summary(
            source: source.string, destination: destination.string, view: view,
            links: view.map { _ in totals.symbolicLinks }, bytesBefore: view.map { _ in totals.bytesPresent },
            files: totals.files, directories: totals.directories, symbolicLinks: totals.symbolicLinks,
            hardLinks: totals.hardLinks, specialFiles: totals.specialFiles, present: totals.present,
            bytes: totals.bytes, bytesPresent: totals.bytesPresent, seconds: work.seconds,
            notKept: .init(
                owners: lost.owners, modes: lost.modes, times: lost.times, attributes: lost.attributes,
                devices: lost.devices),
            verified: compared?.files, different: compared?.different ?? 0,
            failed: totals.failures + (compared?.failures ?? 0), failures: work.problems, damaged: totals.damaged,
            damage: damage.withLock { $0 })
    }

    private static func text(
        _ verb: String, _ totals: TransferTotals, _ compared: TransferTotals?, seconds: Double
    ) -> String {
        let others: [(Int, String, String?)] = [
            (totals.directories, "directory", "directories"), (totals.symbolicLinks, "link", nil),
            (totals.hardLinks, "hard link", nil), (totals.specialFiles, "special file", nil),
        ]
        let objects = [(totals.files, "file", nil)] + others.filter { $0.0 > 0 }
        return "\(verb) \(WorkReport.text(objects, bytes: totals.bytes, seconds: seconds))"
            + (totals.present > 0 ? "; \(totals.present) there already" : "")
            + (compared.map { "; \($0.files) verified" } ?? "")
    }

    /// Everything that went wrong. The worst gives the exit code.
    private static func problem(
        _ totals: TransferTotals, _ compared: TransferTotals?
    ) -> (code: FailureCode, message: String)? {
        let lost = totals.lost
        let notKept = [
            (lost.owners, "owner", nil), (lost.modes, "mode", nil), (lost.times, "time", nil),
            (lost.attributes, "set of attributes", "sets of attributes"), (lost.devices, "device", nil),
        ].filter { $0.0 > 0 }.map { AmountText.counted($0.0, $0.1, $0.2) }
        let different = compared?.different ?? 0
        let failed = totals.failures + (compared?.failures ?? 0)
        let parts: [(FailureCode, String)] = [
            totals.damaged > 0 ? (.damageFound, "\(totals.damaged) damaged") : nil,
            different > 0 ? (.damageFound, "\(different) not as written") : nil,
            failed > 0 ? (.incomplete, AmountText.counted(failed, "failure")) : nil,
            notKept.isEmpty ? nil : (.notKept, "could not keep \(notKept.joined(separator: ", "))"),
        ].compactMap { $0 }
        guard let worst = parts.first else { return nil }
        return (worst.0, parts.map(\.1).joined(separator: ", "))
    }
}
