internal import LinuxSystem

/// The work of the durability thread, and when it is due. Any thread. A leaf lock.
final class DurabilitySchedule: Sendable {
    enum Task {
        /// Put the log's entries in place. Begins a new log first if the old one does not work.
        case checkpoint
        /// Note the lengths of files that have grown in their headers.
        case durableLengths([EncryptedFile])
        /// Seal the files that wait for it.
        case sealing
        /// Find out if a store that has failed works again.
        case check
    }

    private struct State {
        /// Times of the first and the last entry since the last checkpoint began.
        var firstEntry, lastEntry: ContinuousClock.Instant?
        /// True if a checkpoint, or a new log, is wanted at once.
        var isHurried = false
        /// True if the last entry has found the log half full.
        var isHalfFull = false
        /// Time before which a checkpoint that has failed is not tried again.
        var nextTry, sealing, check: ContinuousClock.Instant?
        var grown: [EncryptedFile] = []
        var isRunning = false
        var isStopping = false
        /// Number of new logs that have begun.
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

    /// Time without an entry after which a checkpoint is made, and at most from the first entry.
    private static let idle = Duration.seconds(2)
    private static let longest = Duration.seconds(30)
    /// Time from the first file that waits to be sealed to the round that seals it.
    private static let sealingDelay = Duration.seconds(30)
    /// Time without an error of the store after which it is checked. A program that meets one again and again must not make its
    /// fault come and go.
    private static let checkDelay = Duration.seconds(5)
    /// Time for which a request waits for a new log. The thread tries to begin one after each `idle`.
    private static let renewal = Duration.seconds(3)

    let activity = StoreActivity()
    private let state = Monitor(State())

    /// The next task, when its time has come. Nil after `stop`. Called by the durability thread only.
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

    /// Ends the thread. Files that still wait are left for whoever stops it.
    func stop() {
        state.update { state in
            state.isStopping = true
            state.grown = []
        }
    }

    /// Notes that the log has one more entry. Wakes the thread only for the first one and if the log fills.
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

    /// Wants a checkpoint, or a new log, at once.
    func hurry() {
        state.update { state in
            state.firstEntry = state.firstEntry ?? .now
            state.isHurried = true
        }
    }

    /// Ends a checkpoint of the thread. One that has failed is tried again later, also without another entry.
    func finishCheckpoint(hasFailed: Bool) {
        state.access { state in
            state.nextTry = hasFailed ? .now + Self.idle : nil
            // Entries that were appended meanwhile have found the log as it was before.
            state.isHalfFull = false
        }
        if hasFailed { hurry() }
    }

    /// Notes that a file waits to be sealed. Files are closed often: the thread is woken only for the first one, and if there
    /// are many.
    func addSealing(isMany: Bool) {
        let mustWake = state.access { state in
            defer { state.sealing = isMany ? .now : state.sealing ?? .now + Self.sealingDelay }
            return state.sealing == nil || isMany
        }
        if mustWake { state.update { _ in } }
    }

    /// Notes that all files are being sealed which wait now.
    func beginSealing() { state.access { $0.sealing = nil } }

    /// Notes that the store has failed just now, so that it is checked later.
    func checkStore() {
        let mustWake = state.access { state in
            defer { state.check = .now + Self.checkDelay }
            return state.check == nil
        }
        if mustWake { state.update { _ in } }
    }

    /// Adds a file that has grown much, so that its durable length is written soon. Returns false if no thread does
    /// that.
    func addGrown(_ file: EncryptedFile) -> Bool {
        state.update { state in
            guard state.isRunning && !state.isStopping else { return false }
            state.grown.append(file)
            return true
        }
    }

    func forgetGrown(_ file: EncryptedFile) { state.access { state in state.grown.removeAll { $0 === file } } }

    // MARK: A new log

    /// Number of new logs that have begun.
    var renewals: Int { state.access { $0.renewals } }

    func completeRenewal() { state.update { $0.renewals += 1 } }

    /// Waits for the thread to begin a new log, because the store may be back already. Returns false if it has not.
    /// - Parameter renewals: their number before.
    func awaitRenewal(after renewals: Int) -> Bool {
        hurry()
        return state.wait(until: .now + Self.renewal) { state in
            state.renewals != renewals ? true : state.isRunning && !state.isStopping ? nil : false
        } ?? false
    }
}
