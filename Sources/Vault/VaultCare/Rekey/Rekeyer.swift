internal import CLinux
internal import Glibc
internal import LinuxSystem
internal import Synchronization
internal import SystemPackage
package import VaultCrypto
internal import VaultFormat
package import VaultStore

/// Rekeys a vault (FileFormat, Rekeying). `RekeyStart.begin` gives it a new master key. `run` encrypts everything of the previous key
/// epoch again, and then makes the vault forget that epoch's key.
///
/// A rekey can be stopped or killed at any moment. The vault then opens with the same secret and shows the same tree, and
/// the next run continues. `run` is called once. Its threads share the rest.
package final class Rekeyer: Sendable {
    private struct State {
        var totals = RekeyTotals()
        var survey = RekeySurvey()
        var failure: StoreError?
        var reported: Set<[UInt8]> = []
    }

    /// Thrown after a request to stop.
    private static let stopped = StoreError.system(.canceled)

    let store: Store
    let steps: RekeySteps
    private let directory: VaultDirectory
    private let masterKey: SecretBytes
    private let rootStatus: stat
    private let isStopped: @Sendable () -> Bool
    private let onProblem: @Sendable ([UInt8], String) -> Void
    private let onProgress: @Sendable (RekeyTotals, RekeySurvey) -> Void
    private let state = Mutex(State())

    /// Completes a step that a killed rekey has left.
    /// - Parameters:
    ///   - directory: locked by the caller, exclusively, and read since.
    ///   - isStopped: asked often. The current step is completed.
    ///   - onProblem: called with each object that stays under the old key, and the reason. Both are called by any thread.
    ///   - onProgress: called several times a second, by the thread that called `run`. The survey is complete after the
    ///     first walk.
    /// - Throws: `system`, `format`, `damaged`.
    package convenience init(
        directory: VaultDirectory, masterKey: SecretBytes, isStopped: @escaping @Sendable () -> Bool,
        onProblem: @escaping @Sendable (_ shownPath: [UInt8], _ reason: String) -> Void,
        onProgress: @escaping @Sendable (RekeyTotals, RekeySurvey) -> Void = { _, _ in }
    ) throws(VaultError) {
        try self.init(
            directory: directory, masterKey: masterKey, before: { _ in }, isStopped: isStopped, onProblem: onProblem,
            onProgress: onProgress)
    }

    init(
        directory: VaultDirectory, masterKey: SecretBytes, before: @escaping RekeyHook,
        isStopped: @escaping @Sendable () -> Bool = { false },
        onProblem: @escaping @Sendable ([UInt8], String) -> Void = { _, _ in },
        onProgress: @escaping @Sendable (RekeyTotals, RekeySurvey) -> Void = { _, _ in }
    ) throws(VaultError) {
        try directory.authenticate(masterKey: masterKey)
        let keyRing = try KeyRing(masterKey: masterKey, configuration: directory.configuration)
        let (store, status) = try VaultError.wrapping("cannot rekey", directory.path) { () throws(StoreError) in
            let store = try Store(
                root: directory.root, keyRing: keyRing, cacheSize: 0, isReadOnly: false,
                writerLock: directory.writerLock, traits: directory.traits)
            return (store, try store.root.status())
        }
        let steps = RekeySteps(root: store.root, keyRing: keyRing) { (point) throws(StoreError) in
            try before(point)
            try store.admitChange()
        }
        guard let steps else { throw .refused("\(directory.path.shown): no rekey was begun") }
        (self.store, self.steps, self.directory, self.masterKey, rootStatus) = (
            store, steps, directory, masterKey, status
        )
        (self.isStopped, self.onProblem, self.onProgress) = (isStopped, onProblem, onProgress)
        // Without the vault, every further object would fail.
        directory.writerLock?.onLoss.set { [weak self] in self?.fail(.system(.ioError)) }
    }

    /// Continues to the end, or as far as possible.
    /// - Parameter workspaces: one for each thread.
    /// - Throws: `system` if the store accepts no more changes, such as `ENOSPC`; `damaged`.
    package func run(workspaces: [Workspace]) throws(VaultError) -> RekeyOutcome {
        defer { restoreRoot() }
        do throws(StoreError) {
            let names = try findWork()
            try rekeyLinkSets(names, workspaces)
            try rekeyFiles(names, workspaces)
            // A directory's step takes the times from the directory.
            restoreRoot()
            let isComplete = try rekeyDirectories()
            if !store.isOnFuse { try retrying { linux_syncfs(store.root.fd) } }
            guard isComplete else {
                directory.releaseWriterLock()
                return RekeyOutcome(totals: totals, isFinished: false, isStopped: false)
            }
            try store.admitChange()
            try store.log.checkpoint(.end)
            try steps.before(.finish)
        } catch {
            if error == Self.stopped { return RekeyOutcome(totals: totals, isFinished: false, isStopped: true) }
            switch error {
            case .system(let errno), .refused(let errno):
                let what = isLost ? "vaultfs.lock was removed, or another mount took it: cannot rekey" : "cannot rekey"
                throw .system(errno, what, directory.path)
            case .unavailable, .damaged, .crypto: throw VaultError(error, "cannot rekey", directory.path)
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

    private func finish() throws(VaultError) {
        var replacement = try ConfigurationReplacement(of: directory, wait: RekeyStart.lockTimeout)
        // Someone who can write the store may have replaced it. Sign only what the key authenticates.
        try replacement.vault.authenticate(masterKey: masterKey)
        let (current, started) = (replacement.vault.configuration, directory.configuration)
        guard (current.vault, current.chunkSize, current.epochs) == (started.vault, started.chunkSize, started.epochs)
        else { throw .damaged(directory.path, "vaultfs.json was replaced while the vault was rekeyed") }
        let bytes = try SlotEditor.wrapping { () throws(FormatError) in
            try current.finishingEpoch(masterKey: masterKey).checkedBytes(masterKey: masterKey)
        }
        try VaultError.wrapping("cannot rekey", directory.path, store.admitChange)
        try replacement.put(bytes)
    }

    // MARK: State of all threads

    var totals: RekeyTotals { state.withLock { $0.totals } }

    func count(_ change: (inout RekeyTotals) -> Void) { state.withLock { change(&$0.totals) } }

    func survey(_ change: (inout RekeySurvey) -> Void) { state.withLock { change(&$0.survey) } }

    func showProgress() {
        let (totals, survey) = state.withLock { ($0.totals, $0.survey) }
        onProgress(totals, survey)
    }

    /// Ends the work of all threads.
    private func fail(_ error: StoreError) { state.withLock { if $0.failure == nil { $0.failure = error } } }

    /// - Throws: the error that ended the work of any thread.
    func check() throws(StoreError) {
        if let failure = state.withLock({ $0.failure }) { throw failure }
        if isStopped() { throw Self.stopped }
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
    func handle(_ error: StoreError, about path: [UInt8]) {
        if error.endsRekey { return fail(error) }
        problem(path, error.reason, isDenied: error == .system(.permissionDenied))
    }

    /// Visits every object that is not a directory, and then each directory after its content. Reports objects that cannot
    /// be read: they may belong to the vault, with a name or without.
    func walk(
        visit: (RekeyObject) throws(StoreError) -> Void, leave: (RekeyDirectory) throws(StoreError) -> Void = { _ in }
    ) throws(StoreError) {
        var walk = BackingWalk(try steps.directory(at: []), readsAhead: true)
        while let step = walk.next() {
            try check()
            switch step {
            case .left(let directory): try leave(directory)
            case .failed(nil, let directory, let error): handle(error, about: directory.shown)
            case .failed(let entry?, let directory, let error): failed(entry, directory, error)
            case .found(let found) where found.status.st_mode & S_IFMT == S_IFDIR: continue
            case .found(let found):
                do throws(StoreError) { try visit(try RekeyObject(found.entry, in: found.directory)) } catch {
                    failed(found.entry, found.directory, error)
                }
            }
        }
        try check()
    }

    private func failed(_ entry: [UInt8], _ directory: RekeyDirectory, _ error: StoreError) {
        if error == .system(.noSuchFileOrDirectory) || directory.isFileSystems(entry) { return }
        handle(error, about: directory.shownPath(of: entry))
    }
}
