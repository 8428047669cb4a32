internal import LinuxSystem
internal import Synchronization
internal import SystemPackage

/// Tells long computations of a mount to stop: while it is locked, and at its end. Any thread.
package final class Interruption: Sendable {
    private let hasEnded = Atomic<Bool>(false)
    private let lock = Mutex(Lock(isClosed: { false }))

    /// A struct, because a mutex of a function would wrap it once more at each use.
    private struct Lock: Sendable {
        let isClosed: @Sendable () -> Bool
    }

    package init() {}

    /// - Parameter isLocked: true from the beginning of a lock to the unlock; before the mount serves, true if a signal has
    ///   ended it.
    package func setLock(_ isLocked: @escaping @Sendable () -> Bool) {
        lock.withLock { $0 = Lock(isClosed: isLocked) }
    }

    /// Stops all computations, also later ones.
    package func end() { hasEnded.store(true, ordering: .releasing) }

    /// Call this every millisecond or so.
    /// - Throws: `.store`, for the program that waits, if the computation must stop.
    func check() throws(ViewError) {
        if hasEnded.load(ordering: .acquiring) { throw .store(.refused(.socketNotConnected)) }
        if lock.withLock({ $0 }).isClosed() { throw .store(.locked) }
    }

    /// True for the errors of `check`, which say nothing about what was being read.
    static func isCause(of error: StoreError) -> Bool {
        error == .locked || error == .refused(.socketNotConnected)
    }

    /// The same as `check` for a caller without the view's other errors.
    /// - Throws: `.locked`, or `ENOTCONN`.
    func checkStore() throws(StoreError) {
        do throws(ViewError) { try check() } catch {
            guard case .store(let error) = error else { preconditionFailure("internal error: \(error)") }
            throw error
        }
    }
}
