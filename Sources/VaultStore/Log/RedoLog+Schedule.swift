internal import LinuxSystem

extension RedoLog {
    /// The work of the thread that makes checkpoints.
    struct Schedule {
        /// Times of the first and the last entry since the last checkpoint, in milliseconds of CLOCK_MONOTONIC.
        var first: Int?
        var last = 0
        var isHalfFull = false
        var isStopping = false
    }

    /// Milliseconds without an entry after which a checkpoint is made, and at most from the first entry.
    private static let idle = 2000
    private static let longest = 30_000

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

    /// Makes checkpoints when the store is idle and when the log is half full. The body of a thread. Returns after `stop`.
    package func run() {
        while let first = schedule.next({ $0.isStopping ? .end : $0.first.map { .item($0) } ?? .wait }) {
            while pause({ $0.isStopping || $0.isHalfFull }) {
                let now = monotonicMilliseconds()
                if now - schedule.access({ $0.last }) >= Self.idle || now - first >= Self.longest { break }
            }
            schedule.access { schedule in
                schedule.first = nil
                schedule.isHalfFull = false
            }
            do throws(StoreError) { try checkpoint() } catch {
                // Try again later, also without another entry.
                if pause({ $0.isStopping }) { hurry() }
            }
        }
    }

    /// Waits for the time of a pause. Returns false if `isOver` was true earlier.
    private func pause(_ isOver: (Schedule) -> Bool) -> Bool {
        schedule.wait(until: monotonicDeadline(inMilliseconds: Self.idle)) { isOver($0) ? () : nil } == nil
    }

    /// Ends `run`.
    package func stop() { schedule.update { $0.isStopping = true } }
}
