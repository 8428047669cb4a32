internal import FileSystem
internal import Glibc
internal import LinuxSystem
internal import Synchronization
internal import SystemPackage
internal import Transfer

/// What `import` and `export` of a vault say: failures on stderr when they are met, progress, a summary. Any thread.
final class TransferReport: Sendable {
    private struct State {
        var progress = TransferProgress()
        /// How long copying took, when it has ended.
        var seconds: Double?
        var failures: [TransferSummary.Failure] = []
        var damage: [TransferSummary.Damage] = []
    }

    /// How many are in the JSON.
    private static let kept = 1000
    /// How many ranges a line shows.
    private static let shownRanges = 8

    private let source: FilePath
    private let isJSON: Bool
    private let started = ContinuousClock.now
    private let state = Mutex(State())

    /// - Parameter source: as it was typed.
    init(source: FilePath, isJSON: Bool) {
        self.source = source
        self.isJSON = isJSON
    }

    private var elapsed: Double { (ContinuousClock.now - started) / .seconds(1) }

    private func shown(_ path: [UInt8]) -> String {
        path.isEmpty ? source.shown : FilePath(bytes: path).shown
    }

    func addFailure(_ path: [UInt8], _ message: String) {
        state.withLock { state in
            state.progress.clear()
            Console.report("\(shown(path)): \(message)")
            guard isJSON, state.failures.count < Self.kept else { return }
            state.failures.append(.init(path: String(decoding: path, as: UTF8.self), message: message))
        }
    }

    func addDamage(_ path: [UInt8], _ ranges: [Range<UInt64>], _ message: String) {
        let listed = ranges.prefix(Self.shownRanges).map { "\($0.lowerBound)-\($0.upperBound - 1)" }
        let more = ranges.count > listed.count ? " and \(ranges.count - listed.count) more ranges" : ""
        let what = ranges.isEmpty ? "" : "bytes " + listed.joined(separator: ", ") + more + ": "
        state.withLock { state in
            state.progress.clear()
            Console.report("\(shown(path)): damaged: \(what)\(message)")
            guard isJSON, state.damage.count < Self.kept else { return }
            state.damage.append(
                .init(
                    path: String(decoding: path, as: UTF8.self),
                    ranges: ranges.map { .init(offset: $0.lowerBound, count: UInt64($0.count)) }, message: message))
        }
    }

    func showProgress(_ totals: TransferTotals, of survey: TransferSurvey) {
        state.withLock { $0.progress.show(totals, of: survey.result) }
    }

    /// What was copied is now compared.
    func beginComparing() {
        state.withLock { state in
            state.progress.clear()
            state.seconds = elapsed
            state.progress = TransferProgress()
            state.progress.label = "verifying "
        }
    }

    func clear() {
        state.withLock { $0.progress.clear() }
    }

    /// Throws where something failed, after the summary.
    /// - Parameters:
    ///   - verb: `imported`, `exported`.
    ///   - compared: of the comparison that followed.
    func finish(
        _ verb: String, to destination: FilePath, _ totals: TransferTotals, compared: TransferTotals?
    ) throws(CommandFailure) {
        clear()
        let seconds = state.withLock { $0.seconds } ?? elapsed
        let summary = TransferSummary(
            source: source, destination: destination, totals, compared: compared, seconds: seconds,
            failures: state.withLock { $0.failures }, damage: state.withLock { $0.damage })
        if isJSON { try Console.printJSON(summary) } else { print(summary.text(verb)) }
        if let problem = summary.problem { throw CommandFailure(problem.code, "\(source.shown): \(problem.message)") }
    }
}
