/// The progress bar of long work. It appears after half a second if stderr is a terminal.
struct WorkProgress {
    /// The work done, and its total if that is known.
    struct Amount {
        /// Objects, with those that were done before.
        var files = 0
        var bytes: UInt64 = 0
        var total: (files: Int, bytes: UInt64)?
        /// Of an earlier run: they count as done, and not for the speed.
        var filesPresent = 0
        var bytesPresent: UInt64 = 0
    }

    private static let interval: Duration = .milliseconds(200)
    /// The work that a file takes besides its bytes, in bytes.
    private static let costOfFile: Double = 32768

    /// Shown before the bar.
    private let label: String
    private let line = ProgressLine()
    private let started = ContinuousClock.now
    private var next = ContinuousClock.now + .milliseconds(500)

    init(label: String = "") { self.label = label }

    /// - Parameter text: called if it is time. Takes the seconds since the start.
    mutating func show(_ text: (Double) -> String) {
        guard line.isShown, ContinuousClock.now >= next else { return }
        let now = ContinuousClock.now
        next = now + Self.interval
        line.show(label + text((now - started) / .seconds(1)))
    }

    func clear() { line.clear() }

    /// `[##########          ]  50%  120 of 240 files  9.0 GiB  1.2 GiB/s  0:08 left`; without a total
    /// `120 files  9.0 GiB  1.2 GiB/s`.
    static func text(_ amount: Amount, seconds: Double) -> String {
        let rate = seconds > 0 ? Double(amount.bytes) / seconds : 0
        let bytes = AmountText.bytes(Double(amount.bytes + amount.bytesPresent)) + "  \(AmountText.bytes(rate))/s"
        guard let total = amount.total else { return AmountText.counted(amount.files, "file") + "  " + bytes }
        let present = Double(amount.bytesPresent) + Double(amount.filesPresent) * costOfFile
        let done = Double(amount.bytes) + present + Double(amount.files - amount.filesPresent) * costOfFile
        let all = max(Double(total.bytes) + Double(total.files) * costOfFile, done)
        let speed = seconds > 0 ? (done - present) / seconds : 0
        let left = speed > 0 ? (all - done) / speed : .infinity
        // Hide estimates above 100 hours.
        let time = left < 360_000 ? "  \(AmountText.time(seconds: Int(left.rounded(.up)))) left" : ""
        return AmountText.bar(all > 0 ? done / all : 0) + "  \(amount.files) of "
            + AmountText.counted(max(total.files, amount.files), "file") + "  " + bytes + time
    }
}
