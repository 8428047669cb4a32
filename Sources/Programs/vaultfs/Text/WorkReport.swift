internal import LinuxSystem
internal import Synchronization
internal import SystemPackage

/// The output of long work on many files: progress, problems as they occur, and a summary. Any thread.
final class WorkReport: Sendable {
    /// A problem of one file. The names of the fields are the interface of `--json`.
    struct Problem: Encodable, Sendable {
        struct Piece: Encodable, Sendable {
            let offset, count: UInt64
        }

        let path: String
        /// The damaged ranges of a damaged file.
        let ranges: [Piece]?
        let message: String
    }

    private struct State {
        var progress = WorkProgress()
        var problems: [Problem] = []
        var damage: [Problem] = []
        /// The duration of the work, while its result is being verified.
        var seconds: Double?
    }

    /// The most problems that a summary lists.
    private static let kept = 1000
    /// The most ranges that a line shows.
    private static let shownRanges = 8

    let isJSON: Bool
    private let root: FilePath
    private let started = ContinuousClock.now
    private let state = Mutex(State())

    /// - Parameter root: as the user typed it. Paths are below it.
    init(_ root: FilePath, isJSON: Bool) {
        self.root = root
        self.isJSON = isJSON
    }

    var problems: [Problem] { state.withLock { $0.problems } }
    var damage: [Problem] { state.withLock { $0.damage } }

    /// The duration of the work, without the verification.
    var seconds: Double { state.withLock { $0.seconds } ?? (ContinuousClock.now - started) / .seconds(1) }

    /// Reports a problem, and keeps it for the summary.
    /// - Parameter text: the text for stderr, if it differs from the message.
    func add(_ path: [UInt8], _ message: String, as text: String? = nil) {
        print(path, text ?? message)
        keep(path, message)
    }

    /// Reports damage, and keeps it for the summary.
    /// - Parameter ranges: empty if nothing of the file verifies.
    func addDamage(_ path: [UInt8], _ ranges: [Range<UInt64>], _ message: String) {
        let listed = ranges.prefix(Self.shownRanges).map { "\($0.lowerBound)-\($0.upperBound - 1)" }
        let more = ranges.count > listed.count ? " and \(ranges.count - listed.count) more ranges" : ""
        let bytes = ranges.isEmpty ? "" : "bytes " + listed.joined(separator: ", ") + more + ": "
        print(path, "damaged: \(bytes)\(message)")
        keep(path, message, ranges.map { .init(offset: $0.lowerBound, count: UInt64($0.count)) }, in: \.damage)
    }

    private func print(_ path: [UInt8], _ text: String) {
        state.withLock { state in
            state.progress.clear()
            Console.report("\(path.isEmpty ? root.shown : FilePath(bytes: path).shown): \(text)")
        }
    }

    func keep(_ path: [UInt8], _ message: String) { keep(path, message, nil, in: \.problems) }

    private func keep(
        _ path: [UInt8], _ message: String, _ ranges: [Problem.Piece]?,
        in list: WritableKeyPath<State, [Problem]>
    ) {
        state.withLock { state in
            guard state[keyPath: list].count < Self.kept else { return }
            state[keyPath: list].append(
                Problem(path: String(decoding: path, as: UTF8.self), ranges: ranges, message: message))
        }
    }

    func showProgress(_ amount: @autoclosure () -> WorkProgress.Amount) {
        state.withLock { $0.progress.show(amount()) }
    }

    /// Begins to verify the result of the finished work.
    func beginVerifying() {
        let seconds = seconds
        state.withLock { state in
            state.progress.clear()
            state.seconds = seconds
            state.progress = WorkProgress(label: "verifying ")
        }
    }

    func clear() { state.withLock { $0.progress.clear() } }

    /// `1 file, 2 links, 3.0 MiB, 1.5 MiB/s`
    /// - Parameter objects: numbers and their words, singular and plural.
    static func text(_ objects: [(Int, String, String?)], bytes: UInt64, seconds: Double) -> String {
        let rate = seconds > 0 ? ["\(AmountText.bytes(Double(bytes) / seconds))/s"] : []
        let counts = objects.map { AmountText.counted($0.0, $0.1, $0.2) }
        return (counts + [AmountText.bytes(Double(bytes))] + rate).joined(separator: ", ")
    }
}
