internal import LinuxSystem

/// The right to use a slot at some time (FileFormat, Leases): a policy that vaultfs keeps, not cryptography. Times are
/// in seconds since 1970-01-01T00:00:00Z.
package enum Lease: Sendable, Equatable {
    /// The end of the right. Nil for no end.
    case valid(until: Int64?)
    /// As `valid`, once its window is started.
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
