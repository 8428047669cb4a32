internal import LinuxSystem

/// The tasks of the durability thread, and their times. Any thread. A leaf lock.
final class DurabilitySchedule: Sendable {
    enum Task {
        /// Put the log's entries in place. Begins a new log first if the old one does not work.
        case checkpoint
        /// Write the lengths of grown files to their headers.
        case durableLengths([EncryptedFile])
        case sealing
        /// Check if a failed store works again.
        case check
    }

    private struct State {
        /// Times of the first entry since the last checkpoint began, and of the last entry. Only entries of the log
        /// count, not writes past the end.
        var firstEntry, lastEntry: ContinuousClock.Instant?
        /// True if a checkpoint, or a new log, is wanted at once.
        var isHurried = false
        /// True if the last entry has found the log half full.
        var isHalfFull = false
        /// The earliest time for retrying a failed checkpoint, and the times of the next seals and of the next check.
        var nextTry, sealing, check: ContinuousClock.Instant?
        var grown: [EncryptedFile] = []
        var isRunning = false
        var isStopping = false
        /// Number of new logs so far.
        var renewals = 0

        var checkpoint: ContinuousClock.Instant? {
            guard let first = firstEntry else { return nil }
            let last = lastEntry ?? first
            let due =
                isHurried || isHalfFull
                ? first : min(last + DurabilitySchedule.idle, first + DurabilitySchedule.longest)
            return nextTry.map { max($0, due) } ?? due
        }
    }

    /// Time from the last entry to a checkpoint, and maximum time from the first one.
    private static let idle = Duration.seconds(2)
    private static let longest = Duration.seconds(30)
    /// Time from the first waiting file to the round of seals.
    private static let sealingDelay = Duration.seconds(30)
    /// Time from the store's last error to its check. Repeated errors postpone the check, because a program that causes
    /// them must not make the fault come and go.
    private static let checkDelay = Duration.seconds(5)
    /// Maximum wait of a request for a new log. The thread tries to begin one after each `idle`.
    private static let renewal = Duration.seconds(3)

    let activity = StoreActivity()
    private let state = Monitor(State())

    /// Returns the next task, once its time has come. Nil after `stop`. Called by the durability thread only.
    func next() -> Task? {
        state.next { state in
            state.isRunning = !state.isStopping
            if state.isStopping { return .end }
            if !state.grown.isEmpty {
                defer { state.grown = [] }
                return .item(.durableLengths(state.grown))
            }
            let now = ContinuousClock.now
            if let time = state.checkpoint, time <= now {
                (state.firstEntry, state.isHurried, state.isHalfFull) = (nil, false, false)
                return .item(.checkpoint)
            }
            if let time = state.sealing, time <= now {
                state.sealing = nil
                return .item(.sealing)
            }
            if let time = state.check, time <= now {
                state.check = nil
                return .item(.check)
            }
            return [state.checkpoint, state.sealing, state.check].compactMap(\.self).min().map { .waitUntil($0) }
                ?? .wait
        }
    }

    /// Ends the thread. Leaves the waiting files to the caller.
    func stop() {
        state.update { state in
            state.isStopping = true
            state.grown = []
        }
    }

    /// Registers a new entry in the log. Wakes the thread only for the first one, and when the log becomes half full.
    func addEntry(isHalfFull: Bool) {
        let mustWake = state.access { state in
            let now = ContinuousClock.now
            state.lastEntry = now
            defer {
                state.firstEntry = state.firstEntry ?? now
                state.isHalfFull = isHalfFull
            }
            return state.firstEntry == nil || isHalfFull && !state.isHalfFull
        }
        if mustWake { state.update { _ in } }
    }

    /// Requests a checkpoint, or a new log, at once.
    func hurry() {
        state.update { state in
            state.firstEntry = state.firstEntry ?? .now
            state.isHurried = true
        }
    }

    /// Ends a checkpoint of the thread. A failed one is tried again later, even without another entry.
    func finishCheckpoint(hasFailed: Bool) {
        state.access { state in
            state.nextTry = hasFailed ? .now + Self.idle : nil
            // Entries appended meanwhile have found the log as it was before.
            state.isHalfFull = false
        }
        if hasFailed { hurry() }
    }

    /// Registers a file that waits to be sealed. Wakes the thread only for the first one, and if there are many,
    /// because programs close files often.
    func addSealing(isMany: Bool) {
        let mustWake = state.access { state in
            defer { state.sealing = isMany ? .now : state.sealing ?? .now + Self.sealingDelay }
            return state.sealing == nil || isMany
        }
        if mustWake { state.update { _ in } }
    }

    /// Registers the sealing of all waiting files.
    func beginSealing() { state.access { $0.sealing = nil } }

    /// Registers a failure of the store, and schedules its check.
    func checkStore() { state.update { $0.check = .now + Self.checkDelay } }

    /// Adds a file that has grown much, to write its durable length soon. Returns false if no thread will do so.
    func addGrown(_ file: EncryptedFile) -> Bool {
        state.update { state in
            guard state.isRunning && !state.isStopping else { return false }
            state.grown.append(file)
            return true
        }
    }

    func forgetGrown(_ file: EncryptedFile) { state.access { state in state.grown.removeAll { $0 === file } } }

    // MARK: A new log

    var renewals: Int { state.access { $0.renewals } }

    func countRenewal() { state.update { $0.renewals += 1 } }

    /// Waits for the thread to begin a new log, because the store may work again. Returns false if the wait was in
    /// vain.
    /// - Parameter renewals: the number of new logs before.
    func awaitRenewal(after renewals: Int) -> Bool {
        hurry()
        return state.wait(until: .now + Self.renewal) { state in
            state.renewals != renewals ? true : state.isRunning && !state.isStopping ? nil : false
        } ?? false
    }
}
