internal import Glibc
package import LinuxSystem
internal import Synchronization

/// The current background work inside the store, by which `status` detects an unresponsive store. Any thread. A leaf
/// lock.
package final class StoreActivity: Sendable {
    /// Times of the last steps, in nanoseconds of CLOCK_MONOTONIC, by thread.
    private let steps = Mutex<[pthread_t: Int]>([:])

    /// Runs work on the store, on its own or as a part of other such work.
    /// - Throws: the error of `body`.
    package func during<Result>(_ body: () throws(StoreError) -> Result) throws(StoreError) -> Result {
        let thread = pthread_self()
        let isWhole = steps.withLock { $0.updateValue(monotonicNanoseconds(), forKey: thread) == nil }
        defer { if isWhole { steps.withLock { _ = $0.removeValue(forKey: thread) } } else { step() } }
        return try body()
    }

    /// Registers an answer of the store to this thread's work, which goes on.
    func step() {
        let thread = pthread_self()
        steps.withLock { if $0[thread] != nil { $0[thread] = monotonicNanoseconds() } }
    }

    /// Start of the longest current wait for the store, in nanoseconds of CLOCK_MONOTONIC. Nil without work.
    package var oldest: Int? { steps.withLock { $0.values.min() } }
}
