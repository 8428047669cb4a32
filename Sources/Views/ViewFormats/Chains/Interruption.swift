internal import LinuxSystem
internal import Synchronization
internal import SystemPackage

/// Stops the long computations of a mount while it is locked, and at its end. Any thread.
package final class Interruption: Sendable {
    private let hasEnded = Atomic<Bool>(false)
    private let lock = Mutex(Lock(isClosed: { false }))

    /// A struct, because a mutex would wrap a bare function once more at each use.
    private struct Lock: Sendable {
        let isClosed: @Sendable () -> Bool
    }

    package init() {}

    /// - Parameter isLocked: true from the beginning of a lock to the unlock; before the mount serves, true after a
    ///   signal.
    package func setLock(_ isLocked: @escaping @Sendable () -> Bool) {
        lock.withLock { $0 = Lock(isClosed: isLocked) }
    }

    /// Stops all computations, including later ones.
    package func end() { hasEnded.store(true, ordering: .releasing) }

    /// Checks for a lock or the end. Call this every millisecond or so.
    /// - Throws: `.store`, for the waiting program, if the computation must stop.
    func check() throws(ViewError) { try ViewError.ofStore(checkStore()) }

    /// Returns true for the errors of `check`, which say nothing about the file being read.
    static func isCause(of error: StoreError) -> Bool {
        error == .locked || error == .refused(.socketNotConnected)
    }

    /// Checks the same for a caller with store errors only.
    /// - Throws: `.locked`, or `ENOTCONN`.
    func checkStore() throws(StoreError) {
        if hasEnded.load(ordering: .acquiring) { throw .refused(.socketNotConnected) }
        if lock.withLock({ $0 }).isClosed() { throw .locked }
    }
}
