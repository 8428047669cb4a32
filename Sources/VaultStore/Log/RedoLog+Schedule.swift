internal import Glibc
internal import LinuxSystem
internal import Synchronization

extension RedoLog {
    /// The work of the thread that makes checkpoints.
    struct Schedule {
        /// Times of the first and the last entry since the last checkpoint, in milliseconds of CLOCK_MONOTONIC.
        var first: Int?
        var last = 0
        var isHalfFull = false
        var isRunning = false
        var isStopping = false
        /// Number of new logs that have begun.
        var renewals = 0
    }

    /// Milliseconds without an entry after which a checkpoint is made, and at most from the first entry.
    private static let idle = 2000
    private static let longest = 30_000
    /// Milliseconds for which a request waits for a new log. The thread tries to begin one each `idle` milliseconds.
    private static let renewal = 3000

    /// Notes that there is an entry. Wakes the thread only for the first one and if the log fills.
    func noteWork(isHalfFull: Bool) {
        let mustWake = schedule.access { schedule in
            schedule.last = monotonicMilliseconds()
            defer {
                schedule.first = schedule.first ?? schedule.last
                schedule.isHalfFull = isHalfFull
            }
            return schedule.first == nil || isHalfFull && !schedule.isHalfFull
        }
        if mustWake { schedule.update { _ in } }
    }

    /// Wakes the thread, to begin a new log at once.
    func hurry() {
        schedule.update { schedule in
            schedule.first = schedule.first ?? monotonicMilliseconds()
            schedule.isHalfFull = true
        }
    }

    /// Waits for the thread to begin a new log, because the store may be back already. The caller has no lock of the log.
    /// - Returns: true if the log did not work, and does now.
    func awaitRenewal() -> Bool {
        let renewals = schedule.access { $0.renewals }
        guard state.withLock({ $0.fault != nil }) else { return false }
        hurry()
        return schedule.wait(until: monotonicDeadline(inMilliseconds: Self.renewal)) { schedule in
            schedule.renewals != renewals ? true : schedule.isRunning && !schedule.isStopping ? nil : false
        } ?? false
    }

    /// Makes checkpoints when the store is idle and when the log is half full. The body of a thread. Returns after `stop`.
    package func run() {
        schedule.update { $0.isRunning = true }
        defer { schedule.update { $0.isRunning = false } }
        while let first = schedule.next({ $0.isStopping ? .end : $0.first.map { .item($0) } ?? .wait }) {
            while pause({ $0.isStopping || $0.isHalfFull }) {
                let now = monotonicMilliseconds()
                if now - schedule.access({ $0.last }) >= Self.idle || now - first >= Self.longest { break }
            }
            schedule.access { schedule in
                schedule.first = nil
                schedule.isHalfFull = false
            }
            do throws(StoreError) {
                try checkpoint()
                try synchronizeDoubtful()
            } catch {
                // Try again later, also without another entry.
                if pause({ $0.isStopping }) { hurry() }
            }
        }
    }

    /// Waits for the time of a pause. Returns false if `isOver` was true earlier.
    private func pause(_ isOver: (Schedule) -> Bool) -> Bool {
        schedule.wait(until: monotonicDeadline(inMilliseconds: Self.idle)) { isOver($0) ? () : nil } == nil
    }

    /// Syncs a file again soon, and until that succeeds.
    func addDoubtful(_ file: EncryptedFile) {
        doubtful.withLock { $0[file.token] = file }
        hurry()
    }

    func removeDoubtful(_ file: EncryptedFile) { doubtful.withLock { _ = $0.removeValue(forKey: file.token) } }

    private func synchronizeDoubtful() throws(StoreError) {
        var failure: StoreError?
        for file in doubtful.withLock({ Array($0.values) }) {
            // Nobody misses a file without a name.
            if !file.isBusy, let status = try? file.reader.status(), status.st_nlink == 0 {
                removeDoubtful(file)
            } else {
                do throws(StoreError) { try file.synchronizeBacking(file.anyDescriptor, dataOnly: true) } catch {
                    failure = error
                }
            }
        }
        if let failure { throw failure }
    }

    /// Ends `run`.
    package func stop() { schedule.update { $0.isStopping = true } }
}
