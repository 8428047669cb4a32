/// The progress bar of long work. It appears after half a second if stderr is a terminal.
struct WorkProgress {
    /// The work done, and its total if known.
    struct Amount {
        /// The number of objects, including those of an earlier run.
        var files = 0
        var bytes: UInt64 = 0
        var total: (files: Int, bytes: UInt64)?
        /// Files of an earlier run. They count as done, but not for the speed.
        var filesPresent = 0
        var bytesPresent: UInt64 = 0

        /// The fixed work for each file, in bytes: a small file takes as long as a hundred times its bytes.
        static let costOfFile = Double(128 << 10)

        /// The work done, in bytes.
        var workDone: Double { Double(bytes + bytesPresent) + Double(files) * Self.costOfFile }
        /// At least the work done, because files can grow after the count.
        var totalWork: Double? {
            total.map { max(workDone, Double($0.bytes) + Double($0.files) * Self.costOfFile) }
        }

        /// Returns the time left at the average rate so far. Nil without a total, or before any work was done.
        func secondsLeft(after seconds: Double) -> Double? {
            let work = workDone - Double(bytesPresent) - Double(filesPresent) * Self.costOfFile
            guard let totalWork, work > 0 else { return nil }
            return (totalWork - workDone) * seconds / work
        }
    }

    private static let interval: Duration = .milliseconds(200)
    /// The text before the bar.
    private let label: String
    private let line = ProgressLine()
    private let started = ContinuousClock.now
    private var next = ContinuousClock.now + .milliseconds(500)

    init(label: String = "") { self.label = label }

    /// - Parameter amount: evaluated only if an update is due.
    mutating func show(_ amount: @autoclosure () -> Amount) { show { Self.parts(amount(), seconds: $0) } }

    /// - Parameter parts: called only if an update is due, with the seconds since the start.
    mutating func show(_ parts: (Double) -> [String]) {
        let now = ContinuousClock.now
        guard line.isShown, now >= next else { return }
        next = now + Self.interval
        let shown = parts((now - started) / .seconds(1))
        line.show([label + (shown.first ?? "")] + shown.dropFirst())
    }

    func clear() { line.clear() }

    /// Returns `[##########          ]  50%`, `8 s left`, `120 of 240 files`, `9.0 GiB`, `1.2 GiB/s`; without a total
    /// `120 files`, `9.0 GiB`, `1.2 GiB/s`.
    static func parts(_ amount: Amount, seconds: Double) -> [String] {
        let rate = seconds > 0 ? Double(amount.bytes) / seconds : 0
        let bytes = [
            AmountText.bytes(Double(amount.bytes + amount.bytesPresent)), "\(AmountText.bytes(rate))/s",
        ]
        guard let total = amount.total, let all = amount.totalWork else {
            return [AmountText.counted(amount.files, "file")] + bytes
        }
        // Hide estimates above 100 hours.
        let left = amount.secondsLeft(after: seconds).map { $0.rounded(.up) }
        let time = left.flatMap { $0 < 360_000 ? "\(AmountText.short(seconds: Int64($0))) left" : nil }
        let files = "\(amount.files) of " + AmountText.counted(max(total.files, amount.files), "file")
        return [AmountText.bar(all > 0 ? amount.workDone / all : 0), time, files].compactMap(\.self) + bytes
    }
}
