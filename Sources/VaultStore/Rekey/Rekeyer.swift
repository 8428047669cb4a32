internal import CLinux
internal import Glibc
internal import LinuxSystem
internal import Synchronization
internal import SystemPackage
package import VaultCrypto
internal import VaultFormat

/// Continues a rekey that was begun: encrypts everything of the previous key epoch again, and then makes the vault forget
/// that epoch's key (FileFormat, Rekeying).
///
/// A rekey can be stopped or killed at any moment. The vault then opens with the same secret and shows the same tree, and
/// the next run continues. Used by one thread, which makes one more for each workspace.
package final class Rekeyer {
    /// State that the threads share.
    final class Shared: Sendable {
        private struct State {
            var totals = RekeyTotals()
            var failure: StoreError?
            var reported: Set<[UInt8]> = []
        }

        private let state = Mutex(State())
        private let isStopped: @Sendable () -> Bool
        private let onProblem: @Sendable ([UInt8], String) -> Void

        init(isStopped: @escaping @Sendable () -> Bool, onProblem: @escaping @Sendable ([UInt8], String) -> Void) {
            self.isStopped = isStopped
            self.onProblem = onProblem
        }

        var totals: RekeyTotals { state.withLock { $0.totals } }

        /// Ends the work of all threads.
        func fail(_ error: StoreError) {
            state.withLock { if $0.failure == nil { $0.failure = error } }
        }

        func count(_ change: (inout RekeyTotals) -> Void) {
            state.withLock { change(&$0.totals) }
        }

        /// Counts an object that was replaced.
        func count(_ old: RekeyIntent.Identity) {
            count { totals in
                if case .file = old { totals.files += 1 } else { totals.links += 1 }
            }
        }

        func countBytes(_ number: UInt64) throws(StoreError) {
            count { $0.bytes += number }
            try check()
        }

        /// Reports each path once: several walks may meet the same problem.
        func problem(_ path: [UInt8], _ reason: String, isDenied: Bool = false) {
            let isNew = state.withLock { state in
                guard state.reported.insert(path).inserted else { return false }
                state.totals.problems += 1
                if isDenied { state.totals.denied += 1 }
                return true
            }
            if isNew { onProblem(path, reason) }
        }

        /// Ends the work if the error concerns the whole vault. Otherwise reports it as the problem of one object.
        func take(_ error: StoreError, about path: [UInt8]) {
            if error.endsRekey {
                fail(error)
            } else {
                problem(path, error.reason, isDenied: error == .system(.permissionDenied))
            }
        }

        /// Reports an object that could not be read. It may belong to the vault, with a name or without.
        func walkFailed(_ path: [UInt8], _ error: StoreError) throws(StoreError) {
            if error.endsRekey { throw error }
            take(error, about: path)
        }

        /// - Throws: the error that ended the work of any thread.
        func check() throws(StoreError) {
            if let failure = state.withLock({ $0.failure }) { throw failure }
            if isStopped() { throw Rekeyer.stopped }
        }

        /// Visits every object that is not a directory, and then each directory after its content.
        func walk(
            _ context: RekeyContext, visit: (RekeyObject) throws(StoreError) -> Void,
            leave: (RekeyDirectory) throws(StoreError) -> Void = { _ in }
        ) throws(StoreError) {
            var walk = BackingWalk(try RekeyDirectory.at([], context), readsAhead: true)
            while let step = walk.next() {
                try check()
                switch step {
                case .left(let directory): try leave(directory)
                case .failed(nil, let directory, let error): try walkFailed(directory.shown, error)
                case .failed(let entry?, let directory, let error): try failed(entry, directory, error)
                case .found(let found) where found.status.st_mode & S_IFMT == S_IFDIR: continue
                case .found(let found):
                    do throws(StoreError) { try visit(try RekeyObject(found.entry, in: found.directory)) } catch {
                        try failed(found.entry, found.directory, error)
                    }
                }
            }
        }

        private func failed(
            _ entry: [UInt8], _ directory: RekeyDirectory, _ error: StoreError
        ) throws(StoreError) {
            if error == .system(.noSuchFileOrDirectory) || directory.isFileSystems(entry) { return }
            try walkFailed(directory.shownPath(of: entry), error)
        }
    }

    /// Thrown after a request to stop.
    private static let stopped = StoreError.system(.canceled)

    let store: Store
    let shared: Shared
    let context: RekeyContext
    let copies: RekeyCopies
    let intents: RekeyIntentFile
    private let directory: VaultDirectory
    private let masterKey: SecretBytes
    private let rootStatus: stat
    /// The work to do. Known after the first walk.
    package internal(set) var survey = RekeySurvey()
    /// Called by the thread that called `run`, several times a second.
    package var onProgress: (RekeyTotals) -> Void = { _ in }

    /// Completes a step that a killed rekey has left.
    /// - Parameters:
    ///   - directory: locked by the caller, exclusively, and read since.
    ///   - isStopped: asked often. The current step is completed.
    ///   - onProblem: called with each object that stays under the old key, and the reason. Both are called by any thread.
    /// - Throws: `system`, `format`, `damaged`.
    package convenience init(
        directory: VaultDirectory, masterKey: SecretBytes, isStopped: @escaping @Sendable () -> Bool,
        onProblem: @escaping @Sendable (_ shownPath: [UInt8], _ reason: String) -> Void
    ) throws(VaultError) {
        try self.init(
            directory: directory, masterKey: masterKey, before: { _ in }, isStopped: isStopped, onProblem: onProblem)
    }

    init(
        directory: VaultDirectory, masterKey: SecretBytes, before: @escaping RekeyHook,
        isStopped: @escaping @Sendable () -> Bool = { false },
        onProblem: @escaping @Sendable ([UInt8], String) -> Void = { _, _ in }
    ) throws(VaultError) {
        try directory.authenticate(masterKey: masterKey)
        self.directory = directory
        self.masterKey = masterKey
        let keyRing = try KeyRing(masterKey: masterKey, configuration: directory.configuration)
        let (store, status) = try VaultError.wrapping("cannot rekey", directory.path) { () throws(StoreError) in
            let store = try Store(
                root: directory.root, keyRing: keyRing, cacheSize: 0, isReadOnly: false,
                writerLock: directory.writerLock)
            return (store, try store.root.status())
        }
        let shared = Shared(isStopped: isStopped, onProblem: onProblem)
        let context = RekeyContext(root: store.root, keyRing: keyRing) { (point) throws(StoreError) in
            try before(point)
            try store.admitChange()
        }
        (self.store, self.shared, self.context, rootStatus) = (store, shared, context, status)
        // Without the vault, every further object would fail.
        directory.writerLock?.onLoss.withLock { $0 = { shared.fail(.system(.ioError)) } }
        guard let intents = RekeyIntentFile(context) else {
            throw .slotRefused("\(directory.path.shown): no rekey was begun")
        }
        self.intents = intents
        copies = RekeyCopies(store: store, before: context.before)
    }

    var totals: RekeyTotals { shared.totals }

    /// Continues to the end, or as far as possible.
    /// - Parameter workspaces: one for each thread.
    /// - Throws: `system` if the store accepts no more changes, such as `ENOSPC`; `damaged`.
    package func run(workspaces: [Workspace]) throws(VaultError) -> RekeyOutcome {
        defer { restoreRoot() }
        do throws(StoreError) {
            let links = try lookAround()
            try rekeyLinkSets(links, workspaces)
            try rekeyFiles(links, workspaces)
            // A directory's step takes the times from the directory.
            restoreRoot()
            try rekeyDirectories()
            if !store.isOnFuse { try retrying { linux_syncfs(store.root.fd) } }
            guard try isComplete() else {
                directory.releaseWriterLock()
                return RekeyOutcome(totals: totals, isFinished: false, isStopped: false)
            }
            try context.before(.finish)
        } catch {
            if error == Self.stopped { return RekeyOutcome(totals: totals, isFinished: false, isStopped: true) }
            switch error {
            case .system(let errno):
                let what = isLost ? "vaultfs.lock is another's, or gone: cannot rekey" : "cannot rekey"
                throw .system(errno, what, directory.path)
            case .damaged(let reason), .crypto(let reason): throw .damaged(directory.path, reason)
            }
        }
        try finish()
        // After any other end not everything is durable, and the next machine waits.
        directory.releaseWriterLock()
        return RekeyOutcome(totals: totals, isFinished: true, isStopped: false)
    }

    private var isLost: Bool { directory.writerLock?.isLost ?? false }

    /// Gives the root its times back. Best effort.
    private func restoreRoot() {
        if !isLost { futimens(store.root.fd, [rootStatus.st_atim, rootStatus.st_mtim]) }
    }

    func walk(
        visit: (RekeyObject) throws(StoreError) -> Void = { _ in },
        leave: (RekeyDirectory) throws(StoreError) -> Void
    ) throws(StoreError) {
        try shared.walk(context, visit: visit, leave: leave)
    }

    private func finish() throws(VaultError) {
        let lock = try ConfigurationLock.take(directory, wait: RekeyBeginning.lockTimeout)
        defer { withExtendedLifetime(lock) {} }
        let now = try directory.reread()
        // Someone who can write the store may have replaced it. Sign only what the key authenticates.
        try now.authenticate(masterKey: masterKey)
        let (current, started) = (now.configuration, directory.configuration)
        guard (current.vault, current.chunkSize, current.epochs) == (started.vault, started.chunkSize, started.epochs)
        else { throw .damaged(directory.path, "vaultfs.json was replaced while the vault was rekeyed") }
        let bytes = try SlotEditor.wrapping { () throws(FormatError) in
            try current.finishingEpoch(masterKey: masterKey).checkedBytes(masterKey: masterKey)
        }
        try VaultError.wrapping("cannot rekey", directory.path, store.admitChange)
        try ConfigurationReplacement(vault: directory, lock: lock, base: current).put(bytes) {}
    }
}

extension StoreError {
    /// True if the error would recur for every further object.
    var endsRekey: Bool {
        switch self {
        case .system(let errno):
            [.noSpace, .diskQuotaExceeded, .readOnlyFileSystem, .noMemory, .tooManyOpenFiles, .canceled].contains(errno)
        case .damaged: false
        case .crypto: true
        }
    }

    /// A message for people, with the reason of damage instead of `EIO`.
    var reason: String {
        switch self {
        case .system(let errno): "\(errno)"
        case .damaged(let reason), .crypto(let reason): reason
        }
    }
}
