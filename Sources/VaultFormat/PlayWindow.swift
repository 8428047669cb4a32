internal import LinuxSystem

/// The time that a slot works from its first use on: a mount, an unlock, an import or an export (FileFormat, Leases).
package struct PlayWindow: Sendable, Equatable {
    /// The lengths that a window may have, in seconds.
    package static let lengths = 1...0xFFFF_FFFF

    /// Its length.
    package let seconds: Int
    /// When it was started: `YYYY-MM-DDThh:mm:ssZ`; nil before the first use.
    package let started: String?
    /// The latest time that is known of since, not before `started`; nil before the first use.
    package let seen: String?

    /// The same at a later time: started, if it was not. Nil if that changes nothing.
    /// - Parameter time: a time `YYYY-MM-DDThh:mm:ssZ`.
    package func seeing(_ time: String) -> PlayWindow? {
        // From the largest unit to the smallest and of one length: the order of text is the order of time.
        if let seen, seen >= time { return nil }
        return PlayWindow(seconds: seconds, started: started ?? time, seen: time)
    }

    /// The end, in seconds since 1970-01-01T00:00:00Z. Nil if it was not started.
    package var end: Int64? { started.flatMap { UtcTime.seconds($0.utf8) }.map { $0 + Int64(seconds) } }

    /// Its part of the slot's line in the MAC's text.
    var canonicalText: String { "window \(seconds),\(started ?? "-"),\(seen ?? "-")" }
}

extension PlayWindow {
    /// A window that was not started. Throws `invalidValue` if its length is out of bounds.
    package init(seconds: Int) throws(FormatError) {
        guard Self.lengths.contains(seconds) else {
            throw FormatError(.invalidValue, "a play window of \(seconds) s is not in 1…\(Self.lengths.upperBound) s")
        }
        self.init(seconds: seconds, started: nil, seen: nil)
    }
}
