internal import CLinux
internal import FileSystem
internal import Glibc
internal import LinuxSystem
internal import Synchronization
internal import SystemPackage
package import VaultCrypto
internal import VaultFormat

/// Goes on with a rekey that was begun: encrypts everything of the previous key epoch anew, and then has the vault forget its
/// key (FileFormat, Rekeying).
///
/// Whatever ends it, and whenever, the vault opens with the same secret, shows the same tree, and a next run goes on. One
/// thread's; files are worked on by as many threads as there are workspaces.
package final class Rekeyer {
    /// Shared by the threads.
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
        var failure: StoreError? { state.withLock { $0.failure } }

        /// Ends the work of all threads.
        func fail(_ error: StoreError) {
            state.withLock { if $0.failure == nil { $0.failure = error } }
        }

        func count(_ change: (inout RekeyTotals) -> Void) {
            state.withLock { change(&$0.totals) }
        }

        /// Each path once: a tree is gone through several times.
        func problem(_ path: [UInt8], _ reason: String) {
            let isNew = state.withLock { state in
                guard state.reported.insert(path).inserted else { return false }
                state.totals.problems += 1
                return true
            }
            if isNew { onProblem(path, reason) }
        }

        /// What a walk could not read: with a name or without, it may be the vault's.
        func walkFailed(_ path: [UInt8], _ error: StoreError) throws(StoreError) {
            if error.endsRekey { throw error }
            take(error, about: path)
        }

        /// Keeps what concerns the whole vault, the first; the rest is the problem of one object.
        func take(_ error: StoreError, about path: [UInt8]) {
            if error.endsRekey {
                fail(error)
            } else {
                problem(path, error.reason)
            }
        }

        /// - Throws: what ended the work, by another thread too.
        func check() throws(StoreError) {
            if let failure { throw failure }
            if isStopped() { throw Rekeyer.stopped }
        }
    }

    /// What is thrown where it was asked to stop.
    static let stopped = StoreError.system(.canceled)

    let store: Store
    let shared: Shared
    let objects: RekeyObjects
    let intents: RekeyIntentFile
    let before: RekeyHook
    private let directory: VaultDirectory
    private let masterKey: SecretBytes
    /// What is to be put back of modes and times.
    let notes: RekeyNotes
    /// How much there is to do.
    package internal(set) var survey = RekeySurvey()
    /// Called by this thread now and then.
    package var onProgress: (RekeyTotals) -> Void = { _ in }

    /// Does first what was left half done.
    /// - Parameters:
    ///   - directory: locked by the caller, exclusively, and read since.
    ///   - isStopped: asked often; a step under way is finished.
    ///   - onProblem: gets what has to stay under the old key, and why. Both on any thread.
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
        let (opened, notes) = try VaultError.wrapping("cannot rekey", directory.path) { () throws(StoreError) in
            let store = try Store(
                root: directory.root, keyRing: keyRing, cacheSize: 0, isReadOnly: false,
                writerLock: directory.writerLock)
            return (store, try RekeyNotes(root: store.root, keyRing: keyRing, admit: store.admitChange))
        }
        store = opened
        let (store, shared) = (self.store, Shared(isStopped: isStopped, onProblem: onProblem))
        self.shared = shared
        // Every object after it would fail as well.
        directory.writerLock?.onLoss.withLock { $0 = { shared.fail(.system(.ioError)) } }
        let before: RekeyHook = { (point) throws(StoreError) in
            try before(point)
            try store.admitChange()
        }
        self.before = before
        guard let notes, let intents = RekeyIntentFile(notes: notes, before: before) else {
            throw .slotRefused("\(directory.path.shown): no rekey was begun")
        }
        self.notes = notes
        self.intents = intents
        objects = RekeyObjects(store: store, notes: notes, before: before)
    }

    var totals: RekeyTotals { shared.totals }

    /// Goes on to the end, or as far as it gets.
    /// - Parameter workspaces: one for each thread.
    /// - Throws: `system`, where the store can take no more, such as `ENOSPC`; `damaged`.
    package func run(workspaces: [Workspace]) throws(VaultError) -> RekeyOutcome {
        defer { if !isLost { notes.restoreRoot() } }
        do throws(StoreError) {
            let links = try lookAround()
            try rekeyLinkSets(links, workspaces)
            try rekeyFiles(links, workspaces)
            notes.restoreRoot()
            try rekeyDirectories()
            try synchronize()
            // In this order, and nothing that could not be read in any of them.
            guard try isComplete(), try clearJournal(), totals.problems == 0 else {
                try notes.end(removing: false)
                directory.releaseWriterLock()
                return RekeyOutcome(totals: totals, isFinished: false, isStopped: false)
            }
            // The notes are of no use to anybody once the vault has forgotten the key.
            try notes.end(removing: true)
            try before(.finish)
        } catch {
            // Best effort: all is put back, and whoever opens the vault next does it once more.
            try? notes.end(removing: false)
            if error == Self.stopped { return RekeyOutcome(totals: totals, isFinished: false, isStopped: true) }
            switch error {
            case .system(let errno):
                let what = isLost ? "vaultfs.lock is another's, or gone: cannot rekey" : "cannot rekey"
                throw .system(errno, what, directory.path)
            case .damaged(let reason), .crypto(let reason): throw .damaged(directory.path, reason)
            }
        }
        try finish()
        // Where it ended otherwise, not all is durable: the next machine waits.
        directory.releaseWriterLock()
        return RekeyOutcome(totals: totals, isFinished: true, isStopped: false)
    }

    private var isLost: Bool { directory.writerLock?.isLost ?? false }

    /// A walk whose failures are an object's problem, but for those that end everything.
    func walk(
        enter: @escaping (RekeyPlace) throws(StoreError) -> Void = { _ in },
        visit: @escaping (RekeyWalk.Object) throws(StoreError) -> Void = { _ in },
        leave: @escaping (RekeyPlace) throws(StoreError) -> Void = { _ in }
    ) throws(StoreError) {
        try RekeyWalk(
            notes: notes, enter: enter, visit: visit, leave: leave,
            failed: shared.walkFailed
        ).run()
    }

    /// All that was done is on disk before the old key goes.
    private func synchronize() throws(StoreError) {
        guard store.isOnFuse else {
            try retrying { linux_syncfs(store.root.fd) }
            return
        }
        try walk(enter: { (place) throws(StoreError) in try place.descriptor.synchronize(dataOnly: false) })
    }

    private func finish() throws(VaultError) {
        let lock = try ConfigurationLock.take(directory, wait: RekeyBeginning.patience)
        defer { withExtendedLifetime(lock) {} }
        let now = try directory.reread()
        // Whoever can write the store may have put another there since: what is signed is what the key vouches for.
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
    /// Whether it concerns every object to come as well.
    var endsRekey: Bool {
        switch self {
        case .system(let errno):
            [.noSpace, .diskQuotaExceeded, .readOnlyFileSystem, .noMemory, .tooManyOpenFiles, .canceled].contains(errno)
        case .damaged: false
        case .crypto: true
        }
    }

    /// For people: the reason of damage rather than `EIO`.
    var reason: String {
        switch self {
        case .system(let errno): "\(errno)"
        case .damaged(let reason), .crypto(let reason): reason
        }
    }
}
