internal import LinuxSystem
internal import VaultFormat

/// The right of a slot's secret to change slots (FileFormat, Leases): only those that end no later. `--force` does not
/// lift this policy.
struct SlotAuthority {
    private let opener: KeySlot
    /// The slot's end in seconds since 1970-01-01T00:00:00Z. Nil for none. An unstarted window counts as started now.
    private let end: Int64?
    /// True before the window has begun. Such a slot must not make others, or no window of the chain would ever begin.
    private let isUnused: Bool

    /// - Parameter opener: the slot opened by the secret.
    init(_ opener: KeySlot) {
        self.opener = opener
        let now = UtcTime.secondsSinceEpoch()
        switch Lease(opener, at: now) {
        case .starts(let until): (end, isUnused) = (until, true)
        case .valid(let until): (end, isUnused) = (until, false)
        case .expired, .setBack: (end, isUnused) = (now, false)
        }
    }

    /// - Throws: code `wrongSecret` if it may open longer than the opener.
    func checkMaking(expires: String?, window: PlayWindow?) throws(CommandFailure) {
        guard !isUnused else { throw refusal("no slot can be made before its play window has begun, by a mount") }
        try checkLimits(expires, window)
    }

    private func checkLimits(_ expires: String?, _ window: PlayWindow?) throws(CommandFailure) {
        let ends = [expires.flatMap { UtcTime.seconds($0.utf8) }, window?.end].compactMap { $0 }
        guard isOutlasted(by: ends.min()) else { return }
        throw refusal("no slot can get a later expiry")
    }

    /// - Parameter slot: the slot to be changed or removed.
    /// - Throws: code `wrongSecret` if it may open longer than the opener.
    func checkTouching(_ slot: KeySlot) throws(CommandFailure) {
        guard slot.id != opener.id, isOutlasted(by: slot.end) else { return }
        throw refusal("slot \(slot.id), which lasts longer, can be neither changed nor removed")
    }

    /// Checks both for a slot with new limits. The opener may keep its own limits.
    func checkChanging(_ slot: KeySlot, expires: String?, window: PlayWindow?) throws(CommandFailure) {
        try checkTouching(slot)
        guard slot.id == opener.id else { return try checkMaking(expires: expires, window: window) }
        if expires == opener.expires, window == opener.window { return }
        try checkLimits(expires, window)
    }

    private func isOutlasted(by other: Int64?) -> Bool {
        guard let end else { return false }
        return other.map { $0 > end } ?? true
    }

    private func refusal(_ what: String) -> CommandFailure {
        CommandFailure(
            .wrongSecret,
            "the secret is that of slot \(opener.id), which expires: with it \(what); use that of a slot without an expiry"
        )
    }
}
