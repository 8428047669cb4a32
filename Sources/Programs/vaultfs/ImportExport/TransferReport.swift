internal import ArgumentParser
internal import LinuxSystem
internal import SystemPackage
internal import Transfer

/// The output of `import` and `export`: see ``WorkReport``. Any thread.
struct TransferReport: Sendable {
    /// The interface of `--json`, through the names of its fields and of those of the totals.
    private struct Summary: Encodable {
        let source, destination: String
        /// The view's format. This field and the next two exist for a view only.
        let view: String?
        let links: Int?
        let bytesBefore: UInt64?
        /// The time of the copying, without that of comparing.
        let seconds: Double
        /// The first failures.
        let failures: [WorkReport.Problem]
        /// The first damaged files.
        let damage: [WorkReport.Problem]
    }

    let work: WorkReport
    /// The path as the user typed it.
    let source: FilePath
    /// The name of the view's format.
    var view: String?
    /// True if the transfer has only one file, whose failure is then the command's only message.
    let isSingleFile: Bool
    /// Appended to the message if some objects were not transferred.
    var advice = ""

    /// Reports an object that was not transferred.
    /// - Parameter path: below the source.
    func addFailure(_ path: [UInt8], _ message: String) {
        if isSingleFile { work.keep(path, message) } else { work.add(path, message) }
    }

    /// Prints the summary.
    /// - Parameters:
    ///   - verb: `imported`, `exported`.
    ///   - isLogDamaged: true if the caller has reported damage of the vault's redo log.
    /// - Throws: a failure if an object failed, is damaged or lost attributes.
    func finish(
        _ verb: String, to destination: FilePath, _ totals: TransferTotals, isLogDamaged: Bool = false
    ) throws {
        work.clear()
        let failure = isSingleFile ? work.problems.first : nil
        if work.isJSON {
            let isView = view != nil
            let summary = Summary(
                source: source.string, destination: destination.string, view: view,
                links: isView ? totals.symbolicLinks : nil, bytesBefore: isView ? totals.bytesPresent : nil,
                seconds: work.seconds, failures: work.problems, damage: work.damage)
            try Console.printJSON(JoinedFields(first: summary, second: totals))
        } else if failure == nil {
            Console.confirm(text(verb, totals))
        }
        guard let problem = Self.problem(totals) else {
            // The report of the log's damage was the message, so only the exit code remains.
            if isLogDamaged { throw ExitCode(FailureCode.damageFound.rawValue) }
            return
        }
        throw CommandFailure(
            isLogDamaged ? .damageFound : problem.code,
            "\(source.shown): \(failure?.message ?? problem.message + (totals.failed > 0 ? advice : ""))")
    }

    private func text(_ verb: String, _ totals: TransferTotals) -> String {
        let others: [(Int, String, String?)] = [
            (totals.directories, "directory", "directories"), (totals.symbolicLinks, "link", nil),
            (totals.hardLinks, "hard link", nil), (totals.specialFiles, "special file", nil),
        ]
        let objects = [(totals.files, "file", nil)] + others.filter { $0.0 > 0 }
        return "\(verb) \(WorkReport.text(objects, bytes: totals.bytes, seconds: work.seconds))"
            + (totals.present > 0 ? "; \(totals.present) there already" : "")
            + (totals.verified.map { "; \($0) verified" } ?? "")
    }

    /// Returns all problems in one line, with the exit code of the worst.
    private static func problem(_ totals: TransferTotals) -> (code: FailureCode, message: String)? {
        let parts: [(FailureCode, String)] = [
            totals.damaged > 0 ? (.damageFound, "\(totals.damaged) damaged") : nil,
            totals.different > 0 ? (.damageFound, "\(totals.different) not as written") : nil,
            totals.failed > 0 ? (.incomplete, AmountText.counted(totals.failed, "failure")) : nil,
            totals.notKept.text.map { (.notKept, $0) },
        ].compactMap { $0 }
        guard let worst = parts.first else { return nil }
        return (worst.0, parts.map(\.1).joined(separator: ", "))
    }
}

extension TransferTotals.NotKept {
    /// A line for people. Nil if everything was kept.
    var text: String? {
        let parts = [
            (owners, "owner", nil), (modes, "mode", nil), (times, "time", nil),
            (attributes, "set of attributes", "sets of attributes"), (devices, "device", nil),
        ].filter { $0.0 > 0 }.map { AmountText.counted($0.0, $0.1, $0.2) }
        return parts.isEmpty ? nil : "could not keep \(parts.joined(separator: ", "))"
    }
}

extension WorkProgress.Amount {
    init(_ totals: TransferTotals, of total: (files: Int, bytes: UInt64)?) {
        self.init(
            files: totals.objects, bytes: totals.bytes, total: total, filesPresent: totals.present,
            bytesPresent: totals.bytesPresent)
    }
}
