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

    private static let interval = 60_000
    /// The most objects that are remembered. No more are reported in a minute.
    static let maximumCount = 1000

    /// By stored path. All objects without a name count as one.
    private let entries = Mutex<[[UInt8]?: Entry]>([:])

    /// Records damage. Returns true if it is to be reported now.
    /// - Parameter now: milliseconds of CLOCK_MONOTONIC.
    func note(_ damage: Damage, at now: Int = monotonicMilliseconds()) -> Bool {
        entries.withLock { entries in
            let key = damage.path?.stored
            if let known = entries[key] {
                guard now - known.reported >= Self.interval else { return false }
            } else if entries.count >= Self.maximumCount {
                guard let oldest = entries.min(by: { $0.value.reported < $1.value.reported }),
                    now - oldest.value.reported >= Self.interval
                else { return false }
                entries[oldest.key] = nil
            }
            entries[key] = Entry(damage: damage, reported: now)
            return true
        }
    }

    /// The damage of each object, the last reported last.
    var all: [Damage] { entries.withLock { $0.values.sorted { $0.reported < $1.reported }.map(\.damage) } }

    /// Forgets the plaintext names, for a lock.
    func forgetNames() {
        entries.withLock { entries in
            for key in entries.keys { entries[key]?.damage.path?.plaintext = nil }
        }
    }
}
