internal import LinuxSystem
internal import Locking
internal import Logging
internal import SystemPackage

/// Unmounts a mount that nobody has used for some time. It has a thread of its own, which wakes at most once in that time.
final class IdleUnmount: Sendable {
    private let delay: Int
    private let mountpoint: FilePath
    private let gate: LockGate
    private let isInPlace: @Sendable () -> Bool
    private let logger: Logger
    private let hasEnded = Monitor(false)

    /// - Parameters:
    ///   - delay: milliseconds without a request.
    ///   - isInPlace: returns false if another mount is at the mountpoint.
    init(
        after delay: Int, _ mountpoint: FilePath, _ gate: LockGate, isInPlace: @escaping @Sendable () -> Bool,
        logger: Logger
    ) {
        self.delay = delay
        self.mountpoint = mountpoint
        self.gate = gate
        self.isInPlace = isInPlace
        self.logger = logger
    }

    /// - Throws: `system` if there is no thread to be had.
    func start() throws(StoreError) { try BackgroundThread(blocksSignals: true) { [self] in run() }.detach() }

    /// For the end of the mount. No unmounting begins after it.
    func stop() { hasEnded.update { $0 = true } }

    private func run() {
        var start = monotonicMilliseconds()
        while true {
            let left = max(start, gate.lastActivityMilliseconds) + delay - monotonicMilliseconds()
            if left > 0 {
                let hasEnded = hasEnded.wait(until: monotonicDeadline(inMilliseconds: left)) { $0 ? true : nil }
                if hasEnded != nil { return }
                continue
            }
            // With the state held: a mount that is made here after the end of this one is not to be unmounted.
            let failure = hasEnded.access { hasEnded -> CommandFailure? in
                guard !hasEnded, isInPlace() else { return nil }
                logger.info("nobody has used it: unmounting \(mountpoint.shown)")
                do throws(CommandFailure) { try Unmounting.unmount(mountpoint, force: false) } catch { return error }
                return nil
            }
            guard let failure else { return }
            // An open file or a working directory is a use too.
            if failure.code != .inUse { logger.warning("\(failure.message)") }
            start = monotonicMilliseconds()
        }
    }
}
