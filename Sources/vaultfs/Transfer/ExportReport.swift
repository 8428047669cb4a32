internal import FileSystem
internal import LinuxSystem
internal import SystemPackage
internal import Transfer
internal import ViewFormats

/// What `export` says: failures on stderr when they are met, progress, and a summary at the end.
final class ExportReport {
    /// The names of the fields are the interface of `--json`.
    private struct Summary: Encodable {
        struct Failure: Encodable {
            let path: String
            let message: String
        }

        let source: String
        let destination: String
        let view: String
        let files: Int
        let directories: Int
        let links: Int
        let present: Int
        let bytes: UInt64
        let bytesBefore: UInt64
        let seconds: Double
        let failed: Int
        /// The first.
        let failures: [Failure]
    }

    private static let keptFailures = 1000

    private let source: FilePath
    private let destination: FilePath
    private let format: ViewFormatName
    /// Whether the source is one file.
    private let isFile: Bool
    private let isJSON: Bool
    private var progress: ExportProgress
    private let started = ContinuousClock.now
    private var failures: [Summary.Failure] = []

    /// - Parameter survey: how many bytes there are to export.
    init(
        source: FilePath, destination: FilePath, format: ViewFormatName, isFile: Bool, isJSON: Bool,
        survey: @escaping () -> UInt64
    ) {
        self.source = source
        self.destination = destination
        self.format = format
        self.isFile = isFile
        self.isJSON = isJSON
        progress = ExportProgress(survey: survey)
    }

    /// - Parameter path: relative to the source.
    func add(_ path: [UInt8], _ message: String) {
        progress.clear()
        if !isFile { Console.report("\(shown(path)): \(message)") }
        if isJSON || isFile, failures.count < Self.keptFailures {
            failures.append(.init(path: String(decoding: path, as: UTF8.self), message: message))
        }
    }

    private func shown(_ path: [UInt8]) -> String {
        path.isEmpty || isFile ? source.shown : source.appending(FilePath(bytes: path).components).shown
    }

    func showProgress(_ totals: ExportTotals) {
        progress.show(totals)
    }

    func clear() {
        progress.clear()
    }

    /// Throws where something failed, after the summary.
    func finish(_ totals: ExportTotals) throws(CommandFailure) {
        progress.clear()
        let seconds = (ContinuousClock.now - started) / .seconds(1)
        if isJSON {
            try Console.printJSON(
                Summary(
                    source: source.string, destination: destination.string, view: format.rawValue,
                    files: totals.files, directories: totals.directories, links: totals.links, present: totals.present,
                    bytes: totals.bytes, bytesBefore: totals.bytesBefore, seconds: seconds, failed: totals.failures,
                    failures: failures))
        } else if !isFile || totals.failures == 0 {
            print(Self.text(totals, seconds: seconds))
        }
        // Of one file there is one line.
        if isFile, let failure = failures.first {
            throw CommandFailure(.incomplete, "\(source.shown): \(failure.message)")
        }
        guard totals.failures == 0 else {
            throw CommandFailure(
                .incomplete, "\(source.shown): \(AmountText.counted(totals.failures, "failure")), the rest is exported")
        }
    }

    private static func text(_ totals: ExportTotals, seconds: Double) -> String {
        let objects = [
            AmountText.counted(totals.files, "file"),
            totals.directories > 0 ? AmountText.counted(totals.directories, "directory", "directories") : nil,
            totals.links > 0 ? AmountText.counted(totals.links, "link") : nil,
        ].compactMap { $0 }
        let bytes = Double(totals.bytes)
        let rate = seconds > 0 ? ", \(AmountText.bytes(bytes / seconds))/s" : ""
        let present = totals.present == 0 ? "" : "; \(totals.present) there already"
        return "exported \(objects.joined(separator: ", ")), \(AmountText.bytes(bytes))\(rate)\(present)"
    }
}
