internal import FileSystem
internal import LinuxSystem
internal import Synchronization

/// The damaged objects found so far. Limits the reports to one a minute for each object, because a program may read a
/// damaged file again and again. Any thread.
final class DamageLog: Sendable {
    private struct Entry {
        var damage: Damage
        /// The time of the last report, in milliseconds of CLOCK_MONOTONIC.
        var reported: Int
    }

    private struct Entries {
        /// The entries by stored path. All objects without a name share one.
        var known: [[UInt8]?: Entry] = [:]
        /// The time until which the log stays full. Without it, each name of a large damaged directory would be
        /// compared with all entries.
        var fullUntil = 0
    }

    private static let interval = 60_000
    /// The most objects remembered, and so the most reported in a minute.
    static let maximumCount = 1000

    private let entries = Mutex(Entries())

    /// Adds damage. Returns true if it must be reported now.
    /// - Parameter now: milliseconds of CLOCK_MONOTONIC.
    func add(_ damage: Damage, at now: Int = monotonicMilliseconds()) -> Bool {
        entries.withLock { entries in
            let key = damage.path?.stored
            if let known = entries.known[key] {
                guard now - known.reported >= Self.interval else { return false }
            } else if entries.known.count >= Self.maximumCount {
                guard now >= entries.fullUntil,
                    let oldest = entries.known.min(by: { $0.value.reported < $1.value.reported })
                else { return false }
                entries.fullUntil = oldest.value.reported + Self.interval
                guard now >= entries.fullUntil else { return false }
                entries.known[oldest.key] = nil
            }
            entries.known[key] = Entry(damage: damage, reported: now)
            return true
        }
    }

    /// The damage of each object, ordered by the time of its report.
    var all: [Damage] { entries.withLock { $0.known.values.sorted { $0.reported < $1.reported }.map(\.damage) } }

    /// Forgets the plaintext names, for a lock.
    func forgetNames() {
        entries.withLock { entries in
            for key in entries.known.keys { entries.known[key]?.damage.path?.plaintext = nil }
        }
    }
}
