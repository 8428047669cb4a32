/// Whether it pays to look for the next request again and again before a worker sleeps: a sleep and a wake cost more than
/// the request does, where the next one follows soon (the kernel's haltpoll governor does the same for idle cores).
/// Used by one worker at a time. Times in nanoseconds of CLOCK_MONOTONIC.
struct RequestPolling {
    /// How long a request is polled for. Programs that read one block after the other come back within 5 to 30 µs.
    static let window: Int64 = 50_000
    /// The most losses in a row after which it is still tried.
    private static let mostCredit = 4
    /// Two looks at the device this far apart: somebody else had the core meanwhile. An undisturbed look takes under a µs.
    private static let preemption: Int64 = 20_000
    /// For how long the core is left to others after that.
    private static let courtesy: Int64 = 50_000_000

    private var credit = mostCredit
    private var courtesyEnd: Int64 = 0

    /// Whether to poll now.
    func isWorthwhile(at now: Int64) -> Bool {
        credit > 0 && now >= courtesyEnd
    }

    /// A request came within the window.
    mutating func won() {
        credit = min(credit + 1, Self.mostCredit)
    }

    /// None came.
    mutating func lost() {
        credit -= 1
    }

    /// A look was made, and the one before it so long ago. Returns false where polling is to end since others want the
    /// core.
    mutating func looked(at now: Int64, before: Int64) -> Bool {
        guard now - before > Self.preemption else { return true }
        courtesyEnd = now + Self.courtesy
        return false
    }

    /// A request came after a sleep: one that polling would have met speaks for it.
    mutating func slept(for duration: Int64) {
        if duration <= Self.window { credit = min(credit + 1, Self.mostCredit) }
    }
}
