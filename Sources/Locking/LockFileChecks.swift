internal import Synchronization

/// The lock files, as requests look at them. Any thread.
final class LockFileChecks: Sendable {
    let files: [LockFile]
    /// With a grace, requests pass until the lock controller says otherwise.
    private let letsPassInGrace: Bool
    /// Told when a request has seen a sign.
    private let onSighting = Mutex<(@Sendable () -> Void)?>(nil)
    private let isReported = Atomic<Bool>(false)

    init(_ options: LockOptions) {
        files = options.lockFiles
        letsPassInGrace = options.graceMilliseconds > 0
    }

    func whenSeen(_ body: @escaping @Sendable () -> Void) {
        onSighting.withLock { $0 = body }
    }

    /// Whether a request may pass: a look of its own at every file. No allocation.
    func letPass() -> Bool {
        for file in files where file.look().isLocked {
            report()
            return letsPassInGrace
        }
        return true
    }

    /// What the files say now.
    func states() -> [(file: LockFile, state: LockFileState)] {
        isReported.store(false, ordering: .sequentiallyConsistent)
        return files.map { ($0, $0.look()) }
    }

    private func report() {
        // Once is enough until the lock controller has looked.
        guard !isReported.exchange(true, ordering: .sequentiallyConsistent) else { return }
        onSighting.withLock { $0 }?()
    }
}
