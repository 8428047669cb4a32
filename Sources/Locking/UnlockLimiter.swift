/// Slows down those who guess secrets through the control socket: each wrong one doubles the wait before the next is
/// looked at, up to a minute. So a day is worth some 1,440 guesses, whatever the number of connections.
struct UnlockLimiter {
    private static let longestWait = 60

    private var failures = 0
    private var notBefore: ContinuousClock.Instant?

    /// Seconds until another secret is looked at; 0: now.
    func wait(at now: ContinuousClock.Instant) -> Int {
        guard let notBefore, now < notBefore else { return 0 }
        return Int((notBefore - now).components.seconds) + 1
    }

    mutating func failed(at now: ContinuousClock.Instant) {
        failures += 1
        notBefore = now + .seconds(min(Self.longestWait, 1 << min(failures - 1, 10)))
    }

    mutating func succeeded() {
        self = UnlockLimiter()
    }
}
