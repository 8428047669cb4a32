internal import FileSystem
internal import LinuxSystem
internal import Synchronization

/// The damaged objects that requests have met. Decides when one is reported: at most once a minute, because a program may
/// read a damaged file again and again. Any thread.
final class DamageLog: Sendable {
    private struct Entry {
        var damage: Damage
        /// Milliseconds of CLOCK_MONOTONIC.
        var reported: Int
    }

    private struct Entries {
        /// By stored path. All objects without a name count as one.
        var known: [[UInt8]?: Entry] = [:]
        /// While there is no room: the time until which that stays so. Without it, each name of a large damaged directory
        /// would be compared with all entries.
        var fullUntil = 0
    }

    private static let interval = 60_000
    /// The most objects that are remembered. No more are reported in a minute.
    static let maximumCount = 1000

    private let entries = Mutex(Entries())

    /// Adds damage. Returns true if it is to be reported now.
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

    /// The damage of each object, the last reported last.
    var all: [Damage] { entries.withLock { $0.known.values.sorted { $0.reported < $1.reported }.map(\.damage) } }

    /// Forgets the plaintext names, for a lock.
    func forgetNames() {
        entries.withLock { entries in
            for key in entries.known.keys { entries.known[key]?.damage.path?.plaintext = nil }
        }
    }
}
