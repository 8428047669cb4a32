internal import FuseSession
internal import Glibc
internal import LinuxSystem
internal import Locking
internal import Logging
internal import SystemPackage

/// Unmounts an unused mount after a delay. It has a thread of its own, which wakes at most once in that time.
struct IdleUnmount: Sendable {
    /// Milliseconds without a request.
    let delay: Int
    let mountpoint: FilePath
    let gate: LockGate
    let logger: Logger
    /// Returns true if the mount exists and is at the mountpoint.
    let isServed: @Sendable () -> Bool
    private let hasEnded = Monitor(false)
    /// The seconds in which the mount ends after its unmount, unless another mount namespace has a copy of it.
    private static let endingTime = 2

    /// - Throws: `system` if the thread cannot be started.
    func start() throws(StoreError) { try BackgroundThread(blocksSignals: true, run).detach() }

    /// Prevents later unmounts. Called when the mount ends.
    func stop() { hasEnded.update { $0 = true } }

    private func run() {
        var start = monotonicMilliseconds()
        while true {
            let left = max(start, gate.lastActivityMilliseconds) + delay - monotonicMilliseconds()
            if left > 0 {
                let hasEnded = hasEnded.wait(until: .now + .milliseconds(left)) { $0 ? true : nil }
                if hasEnded != nil { return }
                continue
            }
            // Hold the state during this call, because the session exists only until `stop` returns. Unmount without
            // it, because the kernel may need workers for the unmount, and they have ended when `stop` is called.
            let isServed = hasEnded.access { hasEnded -> Bool? in hasEnded ? nil : self.isServed() }
            guard let isServed else { return }
            start = monotonicMilliseconds()
            // Another mount may cover this one for a while.
            guard isServed else { continue }
            do throws(MountError) {
                try Unmounting.unmount(mountpoint, force: false)
                logger.info("unused: unmounted \(mountpoint.shown)")
                return end()
            } catch {
                // An open file or a working directory is a use too, so it is not worth a warning.
                if error.kind != .inUse { logger.warning("\(error.reason)") }
            }
        }
    }

    /// Ends the daemon if a copy of the mount in another namespace (a container, a service) would keep it alive.
    private func end() {
        let hasEnded = hasEnded.wait(until: .now + .seconds(Self.endingTime)) { $0 ? true : nil }
        if hasEnded == nil { kill(getpid(), SIGTERM) }
    }
}
