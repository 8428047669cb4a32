internal import CLinux
internal import LinuxSystem
internal import Synchronization
internal import VaultFormat

/// The sealer of written files, which works after their data is durable, with a delay and many at once (FileFormat,
/// Sealing). Any thread.
package final class HeaderSealer: Sendable {
    private struct Waiting {
        var file: EncryptedFile
        /// Number of times that the file was added. A round releases a file only if it has seen all of them.
        var additions = 1
        var onRelease: @Sendable () -> Void
    }

    private let waiting = Mutex<[UInt64: Waiting]>([:])
    /// Held during a round, because only one may run at a time.
    let round = Mutex<Void>(())
    private let log: RedoLog
    private var schedule: DurabilitySchedule { log.schedule }
    /// Number of waiting files at which a round begins early, because each keeps its descriptors.
    private let limit = shareOfOpenFiles(atMost: 1024)

    init(log: RedoLog) { self.log = log }

    /// Adds a written file, closed unsealed. If programs close files faster than the sealer's thread seals them, the
    /// caller does a round itself, so that descriptors do not run out.
    /// - Parameter onRelease: called once, when the sealer releases the file. Until then every opening of the file must
    ///   use this object. Not called if the file is already waiting.
    /// - Returns: false if the file is already waiting.
    @discardableResult
    package func add(_ file: EncryptedFile, onRelease: @escaping @Sendable () -> Void = {}) -> Bool {
        let (isNew, count) = waiting.withLock { waiting in
            let isNew = waiting[file.token] == nil
            if isNew {
                waiting[file.token] = Waiting(file: file, onRelease: onRelease)
            } else {
                waiting[file.token]?.additions += 1
            }
            return (isNew, waiting.count)
        }
        schedule.addSealing(isMany: count >= limit)
        if count >= 2 * limit { sealAll() }
        return isNew
    }

    /// Releases a file whose last name was removed, to free its space.
    package func forget(_ file: EncryptedFile) {
        file.store.faults.clear(.syncing(file.token))
        file.store.faults.clear(.length(file.fileID))
        schedule.forgetGrown(file)
        waiting.withLock { $0.removeValue(forKey: file.token) }?.onRelease()
    }

    /// Puts everything in place, and seals every waiting file.
    package func sealAll() {
        // Ignore errors: a file whose length only the log has stays unsealed, but is readable all the same.
        try? log.checkpoint(.seals)
        sealWaiting()
    }

    /// Seals every waiting file already in place.
    package func sealWaiting() {
        round.withLock { _ in
            schedule.beginSealing()
            // Keep tokens, not references, so that a file removed during the round is freed at once.
            let seen = waiting.withLock { $0.mapValues(\.additions) }.compactMap { token, additions in
                self.file(token).map { (token: token, additions: additions, mark: $0.lengthMark) }
            }
            if seen.isEmpty { return }
            let together = log.root.synchronizesTogether(seen.count, usesSyncfs: log.usesSyncfs)
            for (token, additions, mark) in seen {
                guard let file = file(token) else { continue }
                let isDone: Bool
                do throws(StoreError) {
                    isDone = try schedule.activity.during { () throws(StoreError) in
                        try file.seal(ifStill: mark, isDurable: together)
                    }
                } catch {
                    // Release an unsealable file too, because it is readable unsealed. But its data must be durable
                    // first, and the store must work.
                    isDone = !error.isOfStore && !file.parts.syncs.isDoubtful
                }
                // An open file is added again at its close. But one with changes in the log waits for a checkpoint,
                // because a lock that forgets the keys makes one, and seals open files too. A file that has grown waits
                // for the next round, and one with wiped keys waits for them, unless there are too many.
                let isAddedAgain = file.isBusy && !file.isLogged
                guard isDone || isAddedAgain || !file.hasKeys && seen.count > limit else { continue }
                let released = waiting.withLock { waiting in
                    waiting[token]?.additions == additions ? waiting.removeValue(forKey: token) : nil
                }
                released?.onRelease()
            }
            scheduleRest()
            linux_scrub_thread()
        }
    }

    /// Schedules a round if a waiting file can be sealed.
    package func scheduleRest() {
        if waiting.withLock({ $0.values.contains { $0.file.hasKeys } }) { schedule.addSealing(isMany: false) }
    }

    /// Number of waiting unsealed files. Counts a file being written as unsealed instead of waiting for it.
    package var unsealed: (withKeys: Int, withoutKeys: Int) {
        let files = waiting.withLock { $0.values.map(\.file) }.filter { file in
            file.writing.withLockIfAvailable { !$0.header.isSealed } ?? true
        }
        let withKeys = files.count(where: \.hasKeys)
        return (withKeys, files.count - withKeys)
    }

    /// Returns a waiting file, or nil if it was released.
    private func file(_ token: UInt64) -> EncryptedFile? { waiting.withLock { $0[token]?.file } }
}
