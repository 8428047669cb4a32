internal import Glibc

/// The clocks of a lease. Any thread.
package struct LeaseClock: Sendable {
    /// CLOCK_REALTIME, in milliseconds since 1970-01-01T00:00:00Z.
    let wall: @Sendable () -> Int64
    /// CLOCK_BOOTTIME, in milliseconds.
    let boot: @Sendable () -> Int64

    /// The kernel's clocks (clock_gettime(2)).
    package static let system = LeaseClock(
        wall: { milliseconds(of: CLOCK_REALTIME) }, boot: { milliseconds(of: CLOCK_BOOTTIME) })

    private static func milliseconds(of clock: clockid_t) -> Int64 {
        var now = timespec()
        clock_gettime(clock, &now)
        return Int64(now.tv_sec) * 1000 + Int64(now.tv_nsec) / 1_000_000
    }
}
