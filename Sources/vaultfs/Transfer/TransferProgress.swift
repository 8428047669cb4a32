internal import Transfer

/// The progress bar of `import` and `export`, from half a second on, where stderr is a terminal.
struct TransferProgress {
    private static let interval: Duration = .milliseconds(200)
    /// What a file takes besides its bytes, in bytes.
    private static let costOfFile: Double = 32768

    private let line = ProgressLine()
    private let started = ContinuousClock.now
    private var next = ContinuousClock.now + .milliseconds(500)
    /// What is being done, before the bar.
    var label = ""

    mutating func show(_ totals: TransferTotals, of survey: (files: Int, bytes: UInt64)?) {
        guard line.isShown, ContinuousClock.now >= next else { return }
        let now = ContinuousClock.now
        next = now + Self.interval
        line.show(label + Self.text(totals, of: survey, seconds: (now - started) / .seconds(1)))
    }

    func clear() {
        line.clear()
    }

    /// `[##########          ]  50%  120 of 240 files  9.0 GiB  1.2 GiB/s  0:08 left`
    /// - Parameters:
    ///   - survey: how much there will be; nil as long as that is not known.
    ///   - seconds: since it began.
    static func text(
        _ totals: TransferTotals, of survey: (files: Int, bytes: UInt64)?, seconds: Double
    ) -> String {
        let rate = seconds > 0 ? Double(totals.bytes) / seconds : 0
        let amount = "\(AmountText.bytes(Double(totals.bytes + totals.bytesPresent)))  \(AmountText.bytes(rate))/s"
        guard let survey else { return AmountText.counted(totals.objects, "file") + "  " + amount }
        let present = Double(totals.bytesPresent) + Double(totals.present) * costOfFile
        let done = Double(totals.bytes) + present + Double(totals.objects - totals.present) * costOfFile
        let all = max(Double(survey.bytes) + Double(survey.files) * costOfFile, done)
        // What was there already says nothing of the speed.
        let speed = seconds > 0 ? (done - present) / seconds : 0
        let left = speed > 0 ? (all - done) / speed : .infinity
        // More than that nobody waits for.
        let time = left < 360_000 ? "  \(AmountText.time(seconds: Int(left.rounded(.up)))) left" : ""
        return AmountText.bar(all > 0 ? done / all : 1) + "  \(totals.objects) of "
            + AmountText.counted(max(survey.files, totals.objects), "file") + "  " + amount + time
    }
}
