internal import CLinux
internal import Glibc
package import LinuxSystem
internal import Synchronization
internal import VaultCrypto
internal import VaultFormat

/// Makes what was written durable: the log, checkpoints, durable lengths and seals, with one schedule and one thread. Any thread.
/// ARCHITECTURE (The life of a chunk) has the states.
package final class Durability: Sendable {
    package let log: RedoLog
    package let sealer: HeaderSealer
    let schedule = DurabilitySchedule()
    private let root: Descriptor
    /// syncfs(2) of the store reaches its disk.
    private let usesSyncfs: Bool
    private let faults: StoreFaults
    /// Files whose data could not be made durable, by their tokens. They are synced again after a checkpoint.
    private let doubtful = Mutex<[UInt64: EncryptedFile]>([:])

    /// - Parameter admit: called before anything is put in place: throws if another process has the vault.
    init(
        root: Descriptor, keys: ChunkKeys, layout: ChunkLayout, usesSyncfs: Bool, faults: StoreFaults,
        admit: @escaping @Sendable () throws(StoreError) -> Void
    ) throws(StoreError) {
        self.root = root
        self.usesSyncfs = usesSyncfs
        self.faults = faults
        log = try RedoLog(
            root: root, keys: keys, layout: layout, size: LogHeader.defaultLogSize, usesSyncfs: usesSyncfs,
            schedule: schedule, faults: faults, admit: admit)
        sealer = HeaderSealer(root: root, usesSyncfs: usesSyncfs, log: log, schedule: schedule)
    }

    /// Does what the schedule says. The body of a thread. Returns after `stop`.
    package func run() {
        while let task = schedule.next() {
            switch task {
            case .checkpoint: checkpoint()
            // If one cannot be made durable, its next growth tries again, and its next fsync reports it.
            case .durableLengths(let files): for file in files { try? file.writeDurableLength() }
            case .sealing: sealer.sealAll()
            }
        }
    }

    /// Ends `run`. What still waits is left for `HeaderSealer.sealAll`.
    package func stop() { schedule.stop() }

    private func checkpoint() {
        do throws(StoreError) {
            try log.checkpoint()
            try synchronizeDoubtful()
            schedule.finishCheckpoint(hasFailed: false)
        } catch {
            schedule.finishCheckpoint(hasFailed: true)
        }
    }

    /// Puts everything in place, durably, and seals every file that waits for it.
    package func synchronizeEverything() throws(StoreError) {
        // A file is sealed only when it is in place. It may have been closed meanwhile.
        try log.checkpoint()
        sealer.sealWaiting()
        try log.checkpoint()
        if usesSyncfs { try retrying { linux_syncfs(root.fd) } }
    }

    /// Makes names and attributes durable, as far as the store can. An error is added as a fault.
    package func synchronizeNames() {
        guard usesSyncfs else { return }
        do throws(StoreError) {
            try retrying { linux_syncfs(root.fd) }
            faults.clear(.names)
        } catch {
            faults.add(.names, "names and attributes could not be made durable (\(error.reason))")
        }
    }

    // MARK: Files whose sync has failed

    /// Syncs a file again soon, and until that succeeds.
    func addDoubtful(_ file: EncryptedFile) {
        doubtful.withLock { $0[file.token] = file }
        schedule.hurry()
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
}
