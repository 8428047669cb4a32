internal import CLinux
internal import Glibc
internal import LinuxSystem
internal import Synchronization

/// Seals files that were written, with a delay and many at once, after their data is durable (FileFormat, Sealing). Runs
/// on a thread of its own, which sleeps without a timer while no file waits. Any thread may call.
package final class HeaderSealer: Sendable {
    private struct Waiting {
        var file: EncryptedFile
        /// Number of times that the file was added. A round releases a file only if it has seen all of them.
        var additions = 1
        var onRelease: @Sendable () -> Void
    }

    /// A waiting file as a round has found it.
    private struct Seen {
        let token: UInt64
        let additions: Int
        /// As `EncryptedFile.lengthMark`.
        let mark: UInt64
    }

    private struct State {
        var pending: [UInt64: Waiting] = [:]
        var oldest: timespec?
        /// Files that have grown much since their header was written.
        var grown: [EncryptedFile] = []
        var isRunning = false
        var isStopping = false
    }

    /// Seconds from the first waiting file to the round that seals it.
    private static let delay = 30
    /// Maximum number of files that are synced one by one. For more files, the whole store is synced.
    private static let fewFiles = 16

    private let state = Monitor(State())
    /// One round at a time.
    private let round = Mutex<Void>(())
    private let root: Descriptor
    private let usesSyncfs: Bool
    private let checkpoint: @Sendable () -> Void
    /// Number of waiting files at which a round begins early, because each keeps its descriptors.
    private let limit: Int

    /// - Parameter checkpoint: puts what the log has in place. Called before a round of the sealer's own.
    init(root: Descriptor, usesSyncfs: Bool, checkpoint: @escaping @Sendable () -> Void) {
        self.root = root
        self.checkpoint = checkpoint
        self.usesSyncfs = usesSyncfs
        limit = shareOfOpenFiles(atMost: 1024)
    }

    /// Adds a file that was written and closed unsealed. If files are closed faster than the sealer's thread seals them,
    /// the caller does a round itself, so that descriptors do not run out.
    /// - Parameter onRelease: called once, when the sealer releases the file. Until then every opening of the file must
    ///   use this object. Not called if the file waits already.
    /// - Returns: false if the file waits already.
    @discardableResult
    package func add(_ file: EncryptedFile, onRelease: @escaping @Sendable () -> Void = {}) -> Bool {
        // Files are closed often. The thread is woken only for the first one and when the limit is reached.
        let (isNew, mustWake, isTooMany) = state.access { state in
            let isNew = state.pending[file.token] == nil
            if isNew {
                state.pending[file.token] = Waiting(file: file, onRelease: onRelease)
            } else {
                state.pending[file.token]?.additions += 1
            }
            let isFirst = state.oldest == nil
            if isFirst { state.oldest = monotonicDeadline(in: Self.delay) }
            return (isNew, isFirst || state.pending.count >= limit, state.pending.count >= 2 * limit)
        }
        if mustWake { state.update { _ in } }
        if isTooMany {
            checkpoint()
            sealAll()
        }
        return isNew
    }

    /// Adds a file that has grown much, so that its durable length is noted soon. Returns false if no thread does that.
    func addGrown(_ file: EncryptedFile) -> Bool {
        state.update { state in
            guard state.isRunning && !state.isStopping else { return false }
            state.grown.append(file)
            return true
        }
    }

    /// Releases a file whose last name was removed, so that its space is freed.
    package func forget(_ file: EncryptedFile) {
        file.store.faults.clear(.syncing(file.token))
        let waiting = state.access { state in
            state.grown.removeAll { $0 === file }
            return state.pending.removeValue(forKey: file.token)
        }
        waiting?.onRelease()
    }

    /// The thread's body. Returns after `stop`.
    package func run() {
        state.access { $0.isRunning = true }
        while true {
            let next: timespec? = state.next { state in
                if state.isStopping { return .end }
                if !state.grown.isEmpty { return .item(monotonicDeadline(in: 0)) }
                return state.oldest.map { .item($0) } ?? .wait
            }
            guard let deadline = next else { return }
            let stopping = state.wait(until: deadline) { state -> Bool? in
                if state.isStopping { return true }
                return state.pending.count >= limit || !state.grown.isEmpty ? false : nil
            }
            if stopping == true { return }
            let grown = state.access { state in
                defer { state.grown = [] }
                return state.grown
            }
            // If one cannot be made durable, its next growth tries again, and its next fsync reports it.
            for file in grown { try? file.noteDurableLength() }
            if !grown.isEmpty { continue }
            checkpoint()
            sealAll()
        }
    }

    /// Ends `run`. Files that still wait are left for `sealAll`.
    package func stop() {
        state.update { state in
            state.isStopping = true
            state.grown = []
        }
    }

    /// Seals every waiting file.
    package func sealAll() {
        round.withLock { _ in
            let waiting = state.update { state in
                state.oldest = nil
                return state.pending.mapValues(\.additions)
            }
            if waiting.isEmpty { return }
            var together = usesSyncfs && waiting.count > Self.fewFiles
            // Without the files: one that is removed during the round must not keep its space until the end.
            let seen = waiting.compactMap { token, additions in
                self.file(token).map { Seen(token: token, additions: additions, mark: $0.lengthMark) }
            }
            if together && linux_syncfs(root.fd) != 0 {
                // It is unknown which files failed, so each is synced on its own.
                together = false
            }
            for seen in seen {
                guard let file = file(seen.token) else { continue }
                // A file that cannot be sealed is released too: it can be read unsealed. But not before its data is durable.
                let isDone = (try? file.seal(ifStill: seen.mark, isDurable: together)) ?? !file.isDoubtful
                // A file that is open is added again when it is closed. One that has grown waits for the next round.
                guard isDone || file.isBusy else { continue }
                release(seen)
            }
            state.update { state in
                if !state.pending.isEmpty && state.oldest == nil { state.oldest = monotonicDeadline(in: Self.delay) }
            }
            linux_scrub_thread()
        }
    }

    /// A waiting file. Nil if it was released.
    private func file(_ token: UInt64) -> EncryptedFile? { state.access { $0.pending[token]?.file } }

    private func release(_ seen: Seen) {
        let released = state.access { state -> Waiting? in
            guard state.pending[seen.token]?.additions == seen.additions else { return nil }
            return state.pending.removeValue(forKey: seen.token)
        }
        released?.onRelease()
    }
}
