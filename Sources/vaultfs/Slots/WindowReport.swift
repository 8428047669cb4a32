internal import LinuxSystem
internal import VaultFormat

/// A play window as `info` and `slot` show it; the names of the fields are the interface of `--json`.
struct WindowReport: Encodable {
    let seconds: Int
    let started: String?
    let seen: String?
    let ends: String?
    let remainingSeconds: Int64

    /// - Parameter now: seconds since 1970-01-01T00:00:00Z.
    init(_ window: PlayWindow, at now: Int64) {
        seconds = window.seconds
        started = window.started
        seen = window.seen
        ends = window.end.map(UtcTime.text(secondsSinceEpoch:))
        // A clock that was set back does not make it longer.
        remainingSeconds = min(Int64(window.seconds), max(0, window.end.map { $0 - now } ?? Int64(window.seconds)))
    }

    /// `play window of 48 h 0 min, started 2026-11-20T12:00:00Z, 12 min left`
    var text: String {
        let length = "play window of \(TimeSpanText.short(Int64(seconds)))"
        guard let started else { return length + ", not started" }
        return
            "\(length), started \(started), \(remainingSeconds > 0 ? TimeSpanText.short(remainingSeconds) : "nothing") left"
    }
}
