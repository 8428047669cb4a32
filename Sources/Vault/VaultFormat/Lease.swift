internal import LinuxSystem

/// The right to use a slot at some time (FileFormat, Leases): a policy of vaultfs, not cryptography. Times are in
/// seconds since 1970-01-01T00:00:00Z.
package enum Lease: Sendable, Equatable {
    /// Usable until this time. Nil for no end.
    case valid(until: Int64?)
    /// Usable like `valid`, but this first use must start the slot's window.
    case starts(until: Int64)
    /// Refused since this time.
    case expired(at: Int64)
    /// The clock is before a time that the slot has seen, so setting it back gains nothing.
    case setBack(seen: Int64)

    /// Returns the right at `now` to use a slot of a configuration whose MAC verifies.
    ///
    /// Only the slot's own times count. Otherwise one slot made under a fast clock would bar all others.
    package init(_ slot: KeySlot, at now: Int64) {
        let times = [slot.created, slot.window?.seen].compactMap { $0 }
        let seen = times.compactMap { UtcTime.seconds($0.utf8) }.max() ?? now
        self =
            if !slot.isLimited {
                .valid(until: nil)
            } else if let end = slot.end, end <= now {
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

/// The time that a slot works from its first mount, unlock, import or export on (FileFormat, Leases).
package struct PlayWindow: Sendable, Equatable {
    /// The range of a window's length, in seconds.
    package static let lengths = 1...0xFFFF_FFFF

    /// The window's length.
    package let seconds: Int
    /// When it was started: `YYYY-MM-DDThh:mm:ssZ`; nil before the first use.
    package let started: String?
    /// The latest known time since the start, not before `started`; nil before the first use.
    package let seen: String?

    /// Returns the window after a use at `time`, which starts it if necessary. Nil if `time` changes nothing.
    /// - Parameter time: a time `YYYY-MM-DDThh:mm:ssZ`.
    package func seeing(_ time: String) -> PlayWindow? {
        // Compare as text: its units have fixed lengths and go from largest to smallest, so text order is time order.
        if let seen, seen >= time { return nil }
        return PlayWindow(seconds: seconds, started: started ?? time, seen: time)
    }

    /// The end, in seconds since 1970-01-01T00:00:00Z. Nil before the start.
    package var end: Int64? { started.flatMap { UtcTime.seconds($0.utf8) }.map { $0 + Int64(seconds) } }

    /// The window's part of the slot's line in the MAC's text.
    var canonicalText: String { "window \(seconds),\(started ?? "-"),\(seen ?? "-")" }
}

extension PlayWindow {
    /// Makes a window that has not started. Throws `invalidValue` if its length is out of bounds.
    package init(seconds: Int) throws(FormatError) {
        try require(
            Self.lengths.contains(seconds), .invalidValue,
            "a play window of \(seconds) s is not in 1…\(Self.lengths.upperBound) s")
        self.init(seconds: seconds, started: nil, seen: nil)
    }
}
