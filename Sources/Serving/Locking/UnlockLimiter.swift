/// Limits guessing of secrets through the control socket. Each wrong secret doubles the wait before the next try, up to
/// a minute. So about 1,440 guesses a day are possible, over any number of connections.
struct UnlockLimiter {
    private static let longestWait = 60

    private var failures = 0
    private var notBefore: ContinuousClock.Instant?

    /// Returns the seconds until another secret may be tried. 0 for now.
    func wait(at now: ContinuousClock.Instant) -> Int {
        guard let notBefore, now < notBefore else { return 0 }
        return Int((notBefore - now).components.seconds) + 1
    }

    mutating func failed(at now: ContinuousClock.Instant) {
        failures += 1
        notBefore = now + .seconds(min(Self.longestWait, 1 << min(failures - 1, 10)))
    }

    mutating func succeeded() { self = UnlockLimiter() }
}
