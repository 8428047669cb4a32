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

        /// The work done, in bytes. Each file counts as some bytes besides its own.
        var workDone: Double { Double(bytes + bytesPresent) + Double(files) * WorkRate.costOfFile }
        private var workPresent: Double { Double(bytesPresent) + Double(filesPresent) * WorkRate.costOfFile }
        /// At least the work done, because files can grow after the count.
        var totalWork: Double? {
            total.map { max(workDone, Double($0.bytes) + Double($0.files) * WorkRate.costOfFile) }
        }

        /// Updates the rate with this amount, and returns the time left. Nil without a total.
        func secondsLeft(by rate: inout WorkRate, at seconds: Double) -> Double? {
            guard let totalWork else { return nil }
            rate.update(work: workDone - workPresent, at: seconds)
            return rate.secondsLeft(for: totalWork - workDone)
        }
    }

    private static let interval: Duration = .milliseconds(200)
    /// The text before the bar.
    private let label: String
    private let line = ProgressLine()
    private let started = ContinuousClock.now
    private var next = ContinuousClock.now + .milliseconds(500)
    private var rate = WorkRate()

    init(label: String = "") { self.label = label }

    /// - Parameter amount: evaluated only if an update is due.
    mutating func show(_ amount: @autoclosure () -> Amount) {
        guard let seconds = secondsIfDue() else { return }
        let amount = amount()
        show(Self.parts(amount, seconds: seconds, left: amount.secondsLeft(by: &rate, at: seconds)))
    }

    /// - Parameter parts: called only if an update is due, with the seconds since the start.
    mutating func show(_ parts: (Double) -> [String]) {
        if let seconds = secondsIfDue() { show(parts(seconds)) }
    }

    private func show(_ parts: [String]) { line.show([label + (parts.first ?? "")] + parts.dropFirst()) }

    private mutating func secondsIfDue() -> Double? {
        guard line.isShown, ContinuousClock.now >= next else { return nil }
        let now = ContinuousClock.now
        next = now + Self.interval
        return (now - started) / .seconds(1)
    }

    func clear() { line.clear() }

    /// Returns `[##########          ]  50%`, `0:08 left`, `120 of 240 files`, `9.0 GiB`, `1.2 GiB/s`; without a total
    /// `120 files`, `9.0 GiB`, `1.2 GiB/s`.
    /// - Parameter left: the seconds left; nil if unknown.
    static func parts(_ amount: Amount, seconds: Double, left: Double? = nil) -> [String] {
        let rate = seconds > 0 ? Double(amount.bytes) / seconds : 0
        let bytes = [
            AmountText.bytes(Double(amount.bytes + amount.bytesPresent)), "\(AmountText.bytes(rate))/s",
        ]
        guard let total = amount.total, let all = amount.totalWork else {
            return [AmountText.counted(amount.files, "file")] + bytes
        }
        // Hide estimates above 100 hours.
        let time = left.flatMap { $0 < 360_000 ? "\(AmountText.time(seconds: Int($0.rounded(.up)))) left" : nil }
        let files = "\(amount.files) of " + AmountText.counted(max(total.files, amount.files), "file")
        return [AmountText.bar(all > 0 ? amount.workDone / all : 0), time, files].compactMap(\.self) + bytes
    }
}
