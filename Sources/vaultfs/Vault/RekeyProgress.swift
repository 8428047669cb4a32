internal import VaultStore

/// The progress bar of `rekey`, from its third second on, where stderr is a terminal.
struct RekeyProgress {
    private static let interval: Duration = .milliseconds(200)

    private let line = ProgressLine()
    private let started = ContinuousClock.now
    private var next = ContinuousClock.now + .seconds(2)

    mutating func show(_ totals: RekeyTotals, of survey: RekeySurvey) {
        guard line.isShown, ContinuousClock.now >= next else { return }
        let now = ContinuousClock.now
        next = now + Self.interval
        line.show(Self.text(totals, of: survey, seconds: (now - started) / .seconds(1)))
    }

    func clear() {
        line.clear()
    }

    /// `[##########          ]  50%  120 of 240 files  9.0 GiB  1.2 GiB/s  0:08 left`
    static func text(_ totals: RekeyTotals, of survey: RekeySurvey, seconds: Double) -> String {
        let rate = seconds > 0 ? Double(totals.bytes) / seconds : 0
        let part = survey.bytes > 0 ? min(1, Double(totals.bytes) / Double(survey.bytes)) : 0
        let left = rate > 0 ? Double(survey.bytes - min(survey.bytes, totals.bytes)) / rate : .infinity
        // More than that nobody waits for.
        let time = left < 360_000 ? "  \(AmountText.time(seconds: Int(left.rounded(.up)))) left" : ""
        return AmountText.bar(part) + "  \(totals.files) of "
            + AmountText.counted(max(survey.files, totals.files), "file")
            + "  \(AmountText.bytes(Double(totals.bytes)))  \(AmountText.bytes(rate))/s" + time
    }
}
