internal import Glibc

/// Times as text, `YYYY-MM-DDThh:mm:ssZ`: for `vaultfs.json`, the log and the control socket.
package enum UtcTime {
    /// The present time, UTC.
    package static func now() -> String { text(secondsSinceEpoch: secondsSinceEpoch()) }

    /// The present time, in seconds since 1970-01-01T00:00:00Z.
    package static func secondsSinceEpoch() -> Int64 { Int64(time(nil)) }

    /// A time, in seconds since 1970-01-01T00:00:00Z.
    package static func text(secondsSinceEpoch: Int64) -> String {
        var seconds = time_t(secondsSinceEpoch)
        var parts = tm()
        gmtime_r(&seconds, &parts)
        let date = [
            padded(Int(parts.tm_year) + 1900, 4), padded(Int(parts.tm_mon) + 1, 2), padded(Int(parts.tm_mday), 2),
        ]
        let clock = [parts.tm_hour, parts.tm_min, parts.tm_sec].map { padded(Int($0), 2) }
        return date.joined(separator: "-") + "T" + clock.joined(separator: ":") + "Z"
    }

    private static func padded(_ number: Int, _ width: Int) -> String {
        let digits = String(number)
        return String(repeating: "0", count: max(0, width - digits.count)) + digits
    }
}
