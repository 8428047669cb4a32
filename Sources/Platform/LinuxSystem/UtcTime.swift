internal import Glibc

/// Times as text, `YYYY-MM-DDThh:mm:ssZ`: for `vaultfs.json`, the log and the control socket.
package enum UtcTime {
    /// Returns the current time as text.
    package static func now() -> String { text(secondsSinceEpoch: secondsSinceEpoch()) }

    /// Returns the current time, in seconds since 1970-01-01T00:00:00Z.
    package static func secondsSinceEpoch() -> Int64 { Int64(time(nil)) }

    /// Returns the text of a time, given in seconds since 1970-01-01T00:00:00Z.
    package static func text(secondsSinceEpoch: Int64) -> String {
        var seconds = time_t(secondsSinceEpoch)
        var parts = tm()
        gmtime_r(&seconds, &parts)
        return withUnsafeTemporaryAllocation(of: CChar.self, capacity: 32) { text in
            // From glibc 2.41, strftime(3) refuses null pointers.
            guard let start = text.baseAddress else { return "" }
            // Use glibc's width, because %Y is not padded.
            let count = strftime(start, text.count, "%04Y-%m-%dT%H:%M:%SZ", &parts)
            return String(decoding: UnsafeRawBufferPointer(text)[..<count], as: UTF8.self)
        }
    }

    /// Returns the seconds since 1970-01-01T00:00:00Z (POSIX.1-2024, XBD 4.19). Nil for other text and for impossible
    /// times: the day must be real, hours end at 23, minutes and seconds at 59.
    package static func seconds(_ text: some Collection<UInt8>) -> Int64? {
        let bytes = Array(text)
        guard bytes.count == 20 else { return nil }
        // A byte other than a digit gives a number with another spelling, so the comparison below fails.
        func number(_ range: Range<Int>) -> Int32 { bytes[range].reduce(0) { $0 * 10 + Int32($1) - 48 } }
        var parts = tm()
        (parts.tm_year, parts.tm_mon, parts.tm_mday) = (number(0..<4) - 1900, number(5..<7) - 1, number(8..<10))
        (parts.tm_hour, parts.tm_min, parts.tm_sec) = (number(11..<13), number(14..<16), number(17..<19))
        let seconds = Int64(timegm(&parts))
        return Array(Self.text(secondsSinceEpoch: seconds).utf8) == bytes ? seconds : nil
    }
}
