internal import CLinux
internal import Glibc
package import LinuxSystem
internal import Synchronization
internal import SystemPackage

/// The thread and the schedule that make written data durable: the log, checkpoints, durable lengths and seals. Any
/// thread. ARCHITECTURE (The life of a chunk) has the states.
package final class Durability: Sendable {
    package let log: RedoLog
    package let sealer: HeaderSealer
    var schedule: DurabilitySchedule { log.schedule }
    package var activity: StoreActivity { schedule.activity }
    private let isReadOnly: Bool
    /// Files whose last sync has failed, by their tokens. They are synced again after a checkpoint.
    private let doubtful = Mutex<[UInt64: EncryptedFile]>([:])
    private var root: Descriptor { log.root }
    private var faults: StoreFaults { log.faults }

    init(_ log: RedoLog, isReadOnly: Bool) {
        (self.log, self.isReadOnly) = (log, isReadOnly)
        sealer = HeaderSealer(log: log)
    }

    /// Carries out the schedule's tasks. The body of a thread. Returns after `stop`.
    package func run() {
        while let task = schedule.next() {
            switch task {
            case .checkpoint: checkpoint()
            // Ignore an error, because the file's next growth tries again, and its next fsync reports it.
            case .durableLengths(let files):
                for file in files { try? activity.during { () throws(StoreError) in try file.writeDurableLength() } }
            case .sealing: sealer.sealAll()
            case .check: checkStore()
            }
        }
    }

    /// Ends `run`. Leaves waiting files to `HeaderSealer.sealAll`.
    package func stop() { schedule.stop() }

    private func checkpoint() {
        let isPlaced = (try? log.placeFiles(.due))?.isEmpty ?? false
        let isDurable = synchronizeDoubtful()
        schedule.finishCheckpoint(hasFailed: !isPlaced || !isDurable)
    }

    /// Puts everything in place, durably, and seals every waiting file.
    /// - Throws: the first error of the store, without taking later steps; or a file's error, after making all others
    ///   durable.
    package func synchronizeEverything() throws(StoreError) {
        // Place twice, because only placed files can be sealed, and files may have been closed meanwhile.
        _ = try log.placeFiles(.sync)
        sealer.sealWaiting()
        let unplaced = try log.placeFiles(.sync)
        try makeNamesDurable()
        try confirm()
        if let error = unplaced.first { throw error }
    }

    /// Does the same for the end, as far as possible, and empties the log. Failures become faults.
    package func finish() {
        sealer.sealAll()
        // Put everything in place, so that an older build or another program reads complete files.
        attempt { () throws(StoreError) in try log.checkpoint(.end) }
        // Sync names before the end counts as clean, because a power cut could bring back a file without its header.
        synchronizeNames()
        attempt { () throws(StoreError) in try confirm() }
    }

    /// Makes names and attributes durable, as far as the store can. An error becomes a fault.
    package func synchronizeNames() { attempt { () throws(StoreError) in try makeNamesDurable() } }

    private func makeNamesDurable() throws(StoreError) {
        guard log.usesSyncfs else { return }
        do throws(StoreError) {
            _ = try activity.during { () throws(StoreError) in try retrying { linux_syncfs(root.fd) } }
        } catch {
            faults.add(.names, "names and attributes could not be made durable (\(error.reason))\(StoreFaults.retry)")
            schedule.checkStore()
            throw error
        }
        faults.clear(.names)
    }

    // MARK: A store that fails

    /// Adds a fault of the store itself if `error` shows one, and has the store checked later. Called with each error
    /// of the store, from a program's request or from work in the background.
    package func met(_ error: StoreError) {
        // vaultfs itself returns ESTALE for an object replaced by another.
        let isStale = error == .system(.staleNFSFileHandle) && (try? root.status()) == nil
        guard error.isOfStore || isStale else { return }
        faults.addStoreError(error)
        schedule.checkStore()
    }

    private func attempt(_ body: () throws(StoreError) -> Void) {
        do throws(StoreError) { try body() } catch { met(error) }
    }

    /// Makes sure that the store answers and, after a failure, accepts changes. Then clears the store's own fault,
    /// because all other losses have faults of their own.
    /// - Throws: the store's error. Then the fault stays.
    package func confirm() throws(StoreError) {
        let errors = faults.storeErrors
        try activity.during { () throws(StoreError) in
            if let lock = log.writerLock { try lock.verifyNow() } else { try VaultDirectory.checkAnswer(of: root) }
            if errors != nil, !isReadOnly { try tryChange() }
        }
        if let errors { faults.clearStore(after: errors) }
    }

    /// Makes a file durable, and removes it. A full store counts as working.
    private func tryChange() throws(StoreError) {
        let temporary = try VaultDirectory.temporaryEntry()
        defer { root.removeQuietly(temporary) }
        do throws(StoreError) {
            try Descriptor(at: root, temporary, flags: O_RDWR | O_CREAT | O_EXCL, mode: 0o600)
                .synchronize(dataOnly: false)
        } catch {
            guard error.isNoSpace else { throw error }
        }
    }

    private func checkStore() {
        do throws(StoreError) {
            // Ignore errors of single files, which have faults of their own.
            _ = try log.placeFiles(.due)
            _ = synchronizeDoubtful()
            try makeNamesDurable()
            try confirm()
        } catch {
            met(error)
            // Check again after any kind of error.
            schedule.checkStore()
        }
    }

    // MARK: Files whose sync has failed

    /// Syncs a file again soon, and until this succeeds.
    func addDoubtful(_ file: EncryptedFile) {
        doubtful.withLock { $0[file.token] = file }
        schedule.hurry()
    }

    func removeDoubtful(_ file: EncryptedFile) { doubtful.withLock { _ = $0.removeValue(forKey: file.token) } }

    /// Syncs the doubtful files. Returns true if all are durable.
    private func synchronizeDoubtful() -> Bool {
        var areDurable = true
        for file in doubtful.withLock({ Array($0.values) }) {
            // An unlinked file is about to vanish, so its lost data is no fault.
            if !file.isBusy, file.reader.hasNoName {
                removeDoubtful(file)
            } else {
                let isDurable: ()? = try? activity.during { () throws(StoreError) in
                    try file.synchronizeBacking(file.anyDescriptor, dataOnly: true)
                }
                if isDurable == nil { areDurable = false }
            }
        }
        return areDurable
    }
}
