internal import Glibc
package import LinuxSystem
internal import Synchronization

/// The work of threads in the background that is inside the store now, so that `status` can name a store that does not
/// answer. Any thread. A leaf lock.
package final class StoreActivity: Sendable {
    /// Times of the last steps, in nanoseconds of CLOCK_MONOTONIC, by thread.
    private let steps = Mutex<[pthread_t: Int]>([:])

    /// Runs work on the store. It may be part of other such work.
    /// - Throws: the error of `body`.
    package func during<Result>(_ body: () throws(StoreError) -> Result) throws(StoreError) -> Result {
        let thread = pthread_self()
        let isWhole = steps.withLock { $0.updateValue(monotonicNanoseconds(), forKey: thread) == nil }
        defer { if isWhole { steps.withLock { _ = $0.removeValue(forKey: thread) } } else { step() } }
        return try body()
    }

    /// Notes that the store has just answered the work of this thread, which goes on.
    func step() {
        let thread = pthread_self()
        steps.withLock { if $0[thread] != nil { $0[thread] = monotonicNanoseconds() } }
    }

    /// The time since which the store has answered some work in nothing, in nanoseconds of CLOCK_MONOTONIC. Nil without
    /// work.
    package var oldest: Int? { steps.withLock { $0.values.min() } }
}
