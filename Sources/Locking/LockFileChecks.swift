internal import Synchronization

/// The requests' checks for lock files. Any thread.
final class LockFileChecks: Sendable {
    let files: [LockFile]
    /// With a grace, requests pass until the lock thread locks.
    private let letsPassInGrace: Bool
    /// Called when a request has found a lock file.
    private let onSighting = Mutex<(@Sendable () -> Void)?>(nil)
    private let isReported = Atomic<Bool>(false)

    init(_ options: LockOptions) {
        files = options.lockFiles
        letsPassInGrace = options.graceMilliseconds > 0
    }

    func whenSeen(_ body: @escaping @Sendable () -> Void) {
        onSighting.withLock { $0 = body }
    }

    /// Checks every file. Returns true if the request may pass. Allocates nothing.
    func letPass() -> Bool {
        for file in files where file.look().isLocked {
            report()
            return letsPassInGrace
        }
        return true
    }

    /// The current state of each file.
    func states() -> [(file: LockFile, state: LockFileState)] {
        isReported.store(false, ordering: .sequentiallyConsistent)
        return files.map { ($0, $0.look()) }
    }

    private func report() {
        // Once until the lock thread has looked.
        guard !isReported.exchange(true, ordering: .sequentiallyConsistent) else { return }
        onSighting.withLock { $0 }?()
    }
}
