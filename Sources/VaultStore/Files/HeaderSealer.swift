internal import CLinux
internal import FileSystem
internal import Glibc
internal import LinuxSystem
internal import Synchronization
internal import SystemPackage
internal import VaultCrypto
internal import VaultFormat

/// Seals files that were written, late and many at once: their data is made durable first (FileFormat.md, "Sealing").
/// A thread of its own that sleeps without a timer while nothing waits. Any thread may call.
package final class HeaderSealer: Sendable {
    private struct Waiting {
        var file: EncryptedFile
        /// How often it has been added: a round lets go only of what it has seen.
        var additions = 1
        var whenLetGo: @Sendable () -> Void
    }

    private struct State {
        var pending: [UInt64: Waiting] = [:]
        var oldest: timespec?
        var isStopping = false
    }

    /// Seconds from the first file that waits to the round that seals it.
    private static let delay = 30
    /// Up to so many files are synced one by one; beyond, the whole store is.
    private static let fewFiles = 16

    private let state = Monitor(State())
    /// One round at a time.
    private let round = Mutex<Void>(())
    private let root: Descriptor
    private let usesSyncfs: Bool
    /// How many files may wait: each keeps its descriptors.
    private let limit: Int

    init(root: Descriptor, usesSyncfs: Bool) {
        self.root = root
        self.usesSyncfs = usesSyncfs
        var files = rlimit()
        let known = getrlimit(__rlimit_resource_t(RLIMIT_NOFILE.rawValue), &files) == 0
        limit = known ? max(8, min(1024, Int(clamping: files.rlim_cur) / 8)) : 8
    }

    /// A file that was open for writing has been closed unsealed. Where files are closed faster than the sealer's thread
    /// seals them, the caller does a round itself: their descriptors are not to run out.
    /// - Parameter whenLetGo: called once, when the sealer holds the file no longer: until then whoever opens the file
    ///   has to use this object. Not called, and false returned, where the file waits already.
    @discardableResult
    package func add(_ file: EncryptedFile, whenLetGo: @escaping @Sendable () -> Void = {}) -> Bool {
        // Files are closed often, and the thread wakes for the first and when it is to work.
        let (isNew, isToWake, isTooMany) = state.access { state in
            let isNew = state.pending[file.token] == nil
            if isNew {
                state.pending[file.token] = Waiting(file: file, whenLetGo: whenLetGo)
            } else {
                state.pending[file.token]?.additions += 1
            }
            let isFirst = state.oldest == nil
            if isFirst { state.oldest = monotonicDeadline(in: Self.delay) }
            return (isNew, isFirst || state.pending.count >= limit, state.pending.count >= 2 * limit)
        }
        if isToWake { state.update { _ in } }
        if isTooMany { sealAll() }
        return isNew
    }

    /// The file's last name is gone: let go of it, so that its space is freed.
    package func forget(_ file: EncryptedFile) {
        state.access { $0.pending.removeValue(forKey: file.token) }?.whenLetGo()
    }

    /// The thread's body: rounds until `stop`.
    package func run() {
        while true {
            let deadline: timespec? = state.wait { state -> timespec?? in
                if state.isStopping { return .some(nil) }
                return state.oldest.map { .some($0) }
            }
            guard let deadline else { return }
            let stopping = state.wait(until: deadline) { state -> Bool? in
                if state.isStopping { return true }
                return state.pending.count >= limit ? false : nil
            }
            if stopping == true { return }
            sealAll()
        }
    }

    /// Ends `run`; what waits is left to `sealAll`.
    package func stop() {
        state.update { $0.isStopping = true }
    }

    /// Seals every file that waits, now; returns when that is done.
    package func sealAll() {
        round.withLock { _ in
            let waiting = state.update { state -> [Waiting] in
                state.oldest = nil
                return Array(state.pending.values)
            }
            if waiting.isEmpty { return }
            var together = usesSyncfs && waiting.count > Self.fewFiles
            let marks = waiting.map { $0.file.lengthMark }
            if together && linux_syncfs(root.fd) != 0 {
                // Which files it concerns is not known: each is to tell for itself.
                together = false
            }
            for (seen, mark) in zip(waiting, marks) {
                // One that cannot be sealed is let go of too: it is read as well without.
                let isDone = (try? seen.file.seal(ifStill: mark, isDurable: together)) ?? true
                // One that is open comes back when it is closed; one that grew meanwhile waits for the next round.
                guard isDone || seen.file.isBusy else { continue }
                letGo(of: seen)
            }
            state.update { state in
                if !state.pending.isEmpty && state.oldest == nil { state.oldest = monotonicDeadline(in: Self.delay) }
            }
            linux_scrub_thread()
        }
    }

    private func letGo(of seen: Waiting) {
        let token = seen.file.token
        let gone = state.access { state -> Waiting? in
            guard state.pending[token]?.additions == seen.additions else { return nil }
            return state.pending.removeValue(forKey: token)
        }
        gone?.whenLetGo()
    }
}
