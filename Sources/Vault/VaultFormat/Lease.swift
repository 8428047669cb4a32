internal import LinuxSystem

/// The right to use a slot at some time (FileFormat, Leases): a policy that vaultfs keeps, not cryptography. Times are
/// in seconds since 1970-01-01T00:00:00Z.
package enum Lease: Sendable, Equatable {
    /// The end of the right. Nil for no end.
    case valid(until: Int64?)
    /// The same as `valid`, once its window is started.
    case starts(until: Int64)
    /// Since then it may not be used.
    case expired(at: Int64)
    /// The clock is before a time that the slot has seen: who set it back gains nothing.
    case setBack(seen: Int64)

    /// The right at `now` to use a slot of a configuration whose MAC verifies.
    ///
    /// The times of other slots do not count: one that was made under a clock that was ahead would bar all of them.
    package init(_ slot: KeySlot, at now: Int64) {
        guard slot.isLimited else {
            self = .valid(until: nil)
            return
        }
        let times = [slot.created, slot.window?.seen].compactMap { $0 }
        let seen = times.compactMap { UtcTime.seconds($0.utf8) }.max() ?? now
        self =
            if let end = slot.end, end <= now {
                .expired(at: end)
            } else if now < seen {
                .setBack(seen: seen)
            } else if let window = slot.window, window.started == nil {
                .starts(until: min(now + Int64(window.seconds), slot.end ?? .max))
            } else {
                .valid(until: slot.end)
            }
    }

    package var isUsable: Bool {
        switch self {
        case .valid, .starts: true
        case .expired, .setBack: false
        }
    }
}

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
        try require(
            Self.lengths.contains(seconds), .invalidValue,
            "a play window of \(seconds) s is not in 1…\(Self.lengths.upperBound) s")
        self.init(seconds: seconds, started: nil, seen: nil)
    }
}
