internal import Transfer

/// The progress bar of `export`, from half a second on, where stderr is a terminal.
struct ExportProgress {
    private static let interval: Duration = .milliseconds(200)

    private let line = ProgressLine()
    private let started = ContinuousClock.now
    private var next = ContinuousClock.now + .milliseconds(500)
    private let survey: () -> UInt64
    /// Bytes there are to export; known when the first line is shown.
    private var total: UInt64?

    init(survey: @escaping () -> UInt64) {
        self.survey = survey
    }

    mutating func show(_ totals: ExportTotals) {
        guard line.isShown, ContinuousClock.now >= next else { return }
        let total = total ?? survey()
        self.total = total
        let now = ContinuousClock.now
        next = now + Self.interval
        line.show(Self.text(totals, of: total, seconds: (now - started) / .seconds(1)))
    }

    func clear() {
        line.clear()
    }

    /// `[##########          ]  50%  9.0 GiB of 18.0 GiB  1.2 GiB/s  0:08 left`
    /// - Parameters:
    ///   - total: about as many bytes as there will be in the end.
    ///   - seconds: since it began.
    static func text(_ totals: ExportTotals, of total: UInt64, seconds: Double) -> String {
        let done = Double(totals.bytes) + Double(totals.bytesBefore)
        let all = max(Double(total), done)
        let part = all > 0 ? done / all : 1
        let rate = seconds > 0 ? Double(totals.bytes) / seconds : 0
        let left = rate > 0 ? (all - done) / rate : .infinity
        // More than that nobody waits for.
        let time = left < 360_000 ? "  \(AmountText.time(seconds: Int(left.rounded(.up)))) left" : ""
        return AmountText.bar(part) + "  \(AmountText.bytes(done)) of \(AmountText.bytes(all))  "
            + "\(AmountText.bytes(rate))/s" + time
    }
}
