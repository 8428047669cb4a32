internal import CLinux
internal import Glibc
internal import LinuxSystem
internal import Synchronization
internal import SystemPackage
package import VaultCrypto
internal import VaultFormat
package import VaultStore

/// The encryption of a vault under a new master key, drawn by `RekeyStart.begin` (FileFormat, Rekeying). `run` replaces
/// every object of the previous key epoch, and then makes the vault forget that epoch's key.
///
/// A rekey can be stopped or killed at any moment. The vault then opens with the same secret and shows the same tree,
/// and the next run continues. `run` is called once. Its threads share the other methods.
package final class Rekeyer: Sendable {
    private struct State {
        var totals = RekeyTotals()
        var failure: StoreError?
        var reported: Set<[UInt8]> = []
    }

    /// Thrown after the user has stopped the rekey.
    private static let stopped = StoreError.system(.canceled)

    let store: Store
    let steps: RekeySteps
    private let directory: VaultDirectory
    private let masterKey: SecretBytes
    private let rootStatus: stat
    private let isStopped: @Sendable () -> Bool
    private let onProblem: @Sendable ([UInt8], String) -> Void
    private let onProgress: @Sendable (RekeyTotals) -> Void
    private let state = Mutex(State())

    /// Completes a step left by a killed rekey.
    /// - Parameters:
    ///   - directory: locked exclusively by the caller, then read.
    ///   - before: for tests.
    ///   - isStopped: called often, by any thread. If true, the current step is still completed.
    ///   - onProblem: called by any thread, with the path for messages of each object that remains under the old key,
    ///     and the reason.
    ///   - onProgress: called several times a second, by the thread of `run`. The total is known after the first walk.
    /// - Throws: `system`, `format`, `damaged`.
    package init(
        directory: VaultDirectory, masterKey: SecretBytes, before: @escaping RekeyHook = { _ in },
        isStopped: @escaping @Sendable () -> Bool = { false },
        onProblem: @escaping @Sendable ([UInt8], String) -> Void = { _, _ in },
        onProgress: @escaping @Sendable (RekeyTotals) -> Void = { _ in }
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
        // Stop if the vault is lost, because every further object would fail.
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
            // Restore the times before the steps, because each step records its directory's times.
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
            let what = isLost ? "vaultfs.lock was removed, or another mount took it: cannot rekey" : "cannot rekey"
            throw VaultError(error, what, directory.path)
        }
        try finish()
        // Kept after a stop or an error: not everything is durable then, so the next machine must wait.
        directory.releaseWriterLock()
        return RekeyOutcome(totals: totals, isFinished: true, isStopped: false)
    }

    private var isLost: Bool { directory.writerLock?.isLost ?? false }

    /// Restores the root's times. Best effort.
    private func restoreRoot() {
        if !isLost { futimens(store.root.fd, [rootStatus.st_atim, rootStatus.st_mtim]) }
    }

    private func finish() throws(VaultError) {
        var replacement = try ConfigurationReplacement(of: directory, wait: RekeyStart.lockTimeout)
        // An attacker with access to the store may have replaced it, so sign only what the key authenticates.
        try replacement.vault.authenticate(masterKey: masterKey)
        let (current, started) = (replacement.vault.configuration, directory.configuration)
        guard (current.vault, current.chunkSize, current.epochs) == (started.vault, started.chunkSize, started.epochs)
        else { throw .damaged(directory.path, "vaultfs.json was replaced while the vault was rekeyed") }
        let bytes = try SlotEditor.wrapping { () throws(FormatError) in
            try current.finishingEpoch(masterKey: masterKey).checkedBytes(masterKey: masterKey)
        }
        try VaultError.wrapping("cannot rekey", directory.path, store.admitChange())
        try replacement.put(bytes)
    }

    // MARK: State of all threads

    var totals: RekeyTotals { state.withLock { $0.totals } }

    func count(_ change: (inout RekeyTotals) -> Void) { state.withLock { change(&$0.totals) } }

    func showProgress() { onProgress(totals) }

    /// Ends the work of all threads.
    private func fail(_ error: StoreError) { state.withLock { if $0.failure == nil { $0.failure = error } } }

    /// Checks if the work goes on.
    /// - Throws: the error that ended the work of any thread.
    func check() throws(StoreError) {
        if let failure = state.withLock({ $0.failure }) { throw failure }
        if isStopped() { throw Self.stopped }
    }

    /// Reports each path once, because several walks may meet the same problem.
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

    /// Visits all objects except directories, and then each directory after its content. Reports unreadable objects,
    /// because they may belong to the vault, with a name or without.
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

    private func failed(_ entry: Component, _ directory: RekeyDirectory, _ error: StoreError) {
        if error == .system(.noSuchFileOrDirectory) || directory.isFileSystems(entry) { return }
        handle(error, about: directory.shownPath(of: entry))
    }
}

/// Replaces the files and links of the previous epoch.
extension Rekeyer {
    enum Kind {
        /// An object of the current epoch, or of a type in which only the name is encrypted.
        case current
        /// A file of the previous epoch, open for reading.
        case previousFile(Descriptor)
        case previousLink(stored: [UInt8], target: [UInt8], ProtectionClass)
        /// An object whose name and content do not authenticate, so it does not belong to the vault.
        case foreign
    }

    /// Replaces objects that have one name in the vault, with one thread for each workspace.
    ///
    /// Directories must wait for this to end, because a step reserves space, which concurrent copies would take.
    func rekeyFiles(_ names: Names, _ workspaces: [Workspace]) throws(StoreError) {
        // The first item is nil, and stands for the walk that finds the objects.
        let pool = WorkPool<RekeyObject?>()
        let bodies = workspaces.map { workspace -> @Sendable (RekeyObject?) -> Void in
            // Only one thread uses each workspace.
            nonisolated(unsafe) let workspace = workspace
            return { [self] object in
                if let object { return replace(object, names, workspace) }
                do throws(StoreError) {
                    try walk(visit: { (object) throws(StoreError) in
                        if !pool.offer(object) { replace(object, names, workspace) }
                    })
                } catch {
                    handle(error, about: [])
                }
            }
        }
        try pool.run(nil, bodies, whileWaiting: showProgress)
        try check()
    }

    private func replace(_ object: RekeyObject, _ names: Names, _ workspace: Workspace) {
        // The others were replaced before, or have names that must not be split.
        guard object.status.st_nlink == 1 || names[object.identity]?.paths.count == 1 else { return }
        do throws(StoreError) {
            try check()
            let directory = object.directory.descriptor
            let temporary = try VaultDirectory.temporaryEntry()
            guard let old = try copy(object, to: temporary, in: directory, workspace) else { return }
            try directory.withTemporary(temporary) { () throws(StoreError) in try steps.before(.replaceEntry) }
            try directory.replace(object.entry, by: temporary)
            count(old)
        } catch {
            handle(error, about: object.shownPath)
        }
    }

    func count(_ old: RekeyIntent.Identity) {
        count { totals in
            if case .file = old { totals.files += 1 } else { totals.links += 1 }
        }
    }

    /// - Throws: `.damaged` if the object's name authenticates, but not its content.
    func kind(of object: RekeyObject) throws(StoreError) -> Kind {
        let keyRing = store.keyRing
        do throws(StoreError) {
            switch object.status.st_mode & S_IFMT {
            case S_IFREG where object.status.st_size >= off_t(FileHeader.size):
                let reader = try object.pin.reopened(flags: O_RDONLY | O_NONBLOCK)
                let header = try StoredHeader(of: reader, keyRing: keyRing).header
                return header.epoch == keyRing.epochs.current ? .current : .previousFile(reader)
            case S_IFLNK:
                let stored = try object.pin.linkTarget()
                let (target, protectionClass, isCurrent) = try keyRing.linkTarget(ofStored: stored)
                return isCurrent ? .current : .previousLink(stored: stored, target: target, protectionClass)
            default: return .current
            }
        } catch .damaged where object.directory.name(of: object.entry) == nil {
            return .foreign
        }
    }

    /// Makes a complete copy of an object in the current epoch. The copy of a file is durable. The old object is closed
    /// on return, because SMB cannot replace an open one.
    /// - Returns: the old object, or nil if there is nothing to replace.
    /// - Throws: `.damaged` if a part of the old object does not verify. The copy is removed then.
    private func copy(
        _ object: RekeyObject, to temporary: Component, in directory: Descriptor, _ workspace: Workspace
    ) throws(StoreError) -> RekeyIntent.Identity? {
        switch try kind(of: object) {
        case .current, .foreign: return nil
        case .previousFile(let reader):
            object.directory.willChange()
            let old = try FileOpening(reader, in: store).open()
            try makeFile(temporary, in: directory, from: old, reader, object.status, workspace)
            return .file(old.fileID)
        case .previousLink(let stored, let target, let protectionClass):
            object.directory.willChange()
            try makeLink(temporary, in: directory, to: target, protectionClass, from: object)
            return .link(stored)
        }
    }

    private func makeFile(
        _ temporary: Component, in directory: Descriptor, from old: EncryptedFile, _ reader: Descriptor,
        _ status: stat, _ workspace: Workspace
    ) throws(StoreError) {
        guard !old.parts.hasUnsealedTail else { throw .damaged("it is longer than its authenticated length") }
        try steps.before(.makeObject)
        let file = try Descriptor(at: directory, temporary, flags: O_CREAT | O_EXCL | O_RDWR, mode: 0o600)
        try directory.withTemporary(temporary) { () throws(StoreError) in
            let new = try FileOpening(file, in: store).create(class: old.protectionClass)
            let attributes = try RekeyedAttributes.read(
                of: reader, from: old.keys.attributeKey, to: new.keys.attributeKey)
            try steps.before(.fillObject)
            try FileCopy(of: old, to: new, workspace).run { (size) throws(StoreError) in
                count { $0.bytes += size }
                try check()
            }
            // This order matters: later calls must not undo earlier ones.
            try file.changeOwner(to: Owner(status))
            try RekeyedAttributes.copyForeign(from: ExtendedAttributes(reader), to: ExtendedAttributes(file))
            for attribute in attributes { try ExtendedAttributes(file).set(attribute.name, attribute.value, flags: 0) }
            try retrying { fchmod(file.fd, status.st_mode & 0o7777) }
            try retrying { futimens(file.fd, [status.st_atim, status.st_mtim]) }
            try file.synchronize(dataOnly: false)
        }
    }

    private func makeLink(
        _ temporary: Component, in directory: Descriptor, to target: [UInt8], _ protectionClass: ProtectionClass,
        from object: RekeyObject
    ) throws(StoreError) {
        let cipher = try store.keyRing.linkCipher(protectionClass)
        let stored = try StoreError.ofFormat(
            LinkTarget.encode(target, class: protectionClass, linkCipher: cipher))
        try steps.before(.makeObject)
        try directory.makeLink(temporary, to: stored)
        try directory.withTemporary(temporary) { () throws(StoreError) in
            try steps.before(.fillObject)
            let new = try Descriptor(at: directory, temporary, flags: linux_O_PATH)
            try new.changeOwner(to: Owner(object.status))
            try RekeyedAttributes.copyForeign(from: ExtendedAttributes(object.pin), to: ExtendedAttributes(new))
            // Best effort, because sshfs sets the times of the link's target, which does not exist.
            try? directory.setTimes(of: temporary, [object.status.st_atim, object.status.st_mtim])
        }
    }
}

/// Files and links with several names in the vault.
extension Rekeyer {
    /// The files and links of the previous epoch with several names: the number of names, and the paths of those in the
    /// vault. With only one path, the other names are outside the vault.
    typealias Names = [FileIdentity: (count: Int, paths: [[Component]])]

    /// Removes objects with possible names in unreadable parts: replacing only the other names would split an object.
    func checkNames(_ names: inout Names) {
        let before = totals
        for (identity, (count, paths)) in names where count > paths.count {
            guard before.problems == 0 else {
                names[identity] = nil
                problem(
                    shownPath(paths[0]),
                    "\(count - paths.count) of its \(count) names may be in what could not be read",
                    isDenied: before.denied == before.problems)
                continue
            }
            self.count { $0.elsewhere += 1 }
        }
    }

    /// Replaces these objects one by one, in steps that keep all names of an object together.
    func rekeyLinkSets(_ names: Names, _ workspaces: [Workspace]) throws(StoreError) {
        guard let workspace = workspaces.first else { preconditionFailure("internal error: no workspace") }
        for (_, paths) in names.values where paths.count > 1 {
            try check()
            showProgress()
            do throws(StoreError) {
                try rekeyLinkSet(paths, workspace)
            } catch {
                try checkStep(error)
                handle(error, about: shownPath(paths[0]))
            }
        }
    }

    private func rekeyLinkSet(_ paths: [[Component]], _ workspace: Workspace) throws(StoreError) {
        guard let entry = paths[0].last else { return }
        let object = try RekeyObject(entry, in: steps.directory(at: paths[0].dropLast()))
        let temporary = try VaultDirectory.temporaryEntry()
        guard let old = try copy(object, to: temporary, in: store.root, workspace) else { return }
        do throws(StoreError) {
            try steps.carryOut(.links(RekeyIntent.Links(old: old, temporary: temporary, paths: paths)))
        } catch {
            // Keep the copy for an incomplete step.
            if try !RekeySteps.isIncomplete(in: store.root) { store.root.removeQuietly(temporary) }
            throw error
        }
        count(old)
    }

    /// Returns the path of an object for messages. It has backing entries if the directory cannot be opened.
    private func shownPath(_ path: [Component]) -> [UInt8] {
        guard let entry = path.last, let directory = try? steps.directory(at: path.dropLast()) else {
            return Array(path.joined(separator: [UInt8(ascii: "/")]))
        }
        return directory.shownPath(of: entry)
    }
}

/// The search for a rekey's work, and new secrets for the directories of the previous epoch.
extension Rekeyer {
    /// Removes the leftovers of interrupted operations, counts the work, and finds the names of each object.
    func findWork() throws(StoreError) -> Names {
        var names: Names = [:]
        try walk(
            visit: { (object) throws(StoreError) in
                let kind: Kind
                // `rekeyDirectories` reports damage.
                do throws(StoreError) { kind = try self.kind(of: object) } catch .damaged { return }
                switch kind {
                case .previousFile:
                    count {
                        $0.expectedFiles += 1
                        // Holes are not copied, so count only allocated blocks.
                        $0.expectedBytes += UInt64(max(0, min(object.status.st_size, object.status.st_blocks * 512)))
                    }
                case .previousLink: break
                case .current, .foreign: return
                }
                if object.status.st_nlink > 1 {
                    names[object.identity, default: (0, [])].paths.append(object.path)
                    names[object.identity]?.count = Int(object.status.st_nlink)
                }
            },
            leave: { (directory) throws(StoreError) in
                // Skip directories of other vaults inside this one.
                guard directory.record != nil else { return }
                for entry in try directory.leftovers() {
                    try store.admitChange()
                    directory.willChange()
                    OpenDirectory.remove(entry, from: directory.descriptor)
                }
            })
        checkNames(&names)
        return names
    }

    /// Gives every directory of the previous epoch a new secret, the innermost first, so that the backing paths of the
    /// remaining ones stay valid. Also reports everything that is, or may be, still of the previous epoch.
    /// - Returns: false if such an object remains.
    func rekeyDirectories() throws(StoreError) -> Bool {
        var left = 0
        try walk(
            visit: { (object) throws(StoreError) in
                switch try kind(of: object) {
                case .current: return
                case .foreign: count { $0.foreign += 1 }
                case .previousFile, .previousLink: left += 1
                }
            },
            leave: { (directory) throws(StoreError) in
                showProgress()
                do throws(StoreError) {
                    if let old = directory.record, old.epoch == store.keyRing.epochs.previous {
                        try rekey(directory, old)
                        count { $0.directories += 1 }
                    }
                    if try isLeft(directory.reread()) { left += 1 }
                    // Sync the directory before the old key is removed. The files are durable already.
                    if store.isOnFuse { try directory.descriptor.synchronize(dataOnly: false) }
                } catch {
                    try checkStep(error)
                    handle(error, about: directory.shown)
                }
            })
        return left == 0 && totals.problems == 0
    }

    private func rekey(_ directory: RekeyDirectory, _ old: DirectoryRecord) throws(StoreError) {
        guard let oldKeys = directory.keys else { return }
        let made = try store.keyRing.makeRecord(old.protectionClass, isRoot: old.isRoot)
        guard old.isRoot == directory.path.isEmpty else { throw .damaged("vaultfs.dir: the root's flag") }
        // Refuse here, because such a step would have to be undone.
        let owner = try directory.descriptor.status(of: OpenDirectory.recordEntry).st_uid
        if ![0, owner].contains(geteuid()), try owner != ownerOfNewFiles() {
            throw .damaged("vaultfs.dir belongs to user \(owner): only they or root can replace it")
        }
        let entries = try directory.descriptor.allEntries()
        for entry in entries { try directory.checkName(of: entry, under: oldKeys) }
        let attributes = try RekeyedAttributes.read(
            of: directory.descriptor, from: oldKeys.attributeKey, to: made.keys.attributeKey)
        let step = RekeyIntent.Directory(
            path: directory.path, oldRecord: old.bytes, newRecord: made.bytes, times: directory.times,
            attributes: attributes)
        // Reserve a block for each sidecar and for each attribute.
        let longNames = entries.count { EntryName.kind(of: $0.bytes) == .longName }
        let space = longNames * 4096 + attributes.reduce(0) { $0 + $1.name.count + $1.value.count + 4096 }
        try steps.carryOut(.directory(step), space: space)
    }

    /// Returns the owner that the store shows for our files. With sshfs this may be another user.
    private func ownerOfNewFiles() throws(StoreError) -> uid_t {
        let temporary = try VaultDirectory.temporaryEntry()
        let file = try Descriptor(at: store.root, temporary, flags: O_CREAT | O_EXCL | O_RDWR, mode: 0o600)
        defer { store.root.removeQuietly(temporary) }
        return try file.status().st_uid
    }

    /// Reports a directory's problems. Returns true if it is of the previous epoch.
    private func isLeft(_ directory: RekeyDirectory) throws(StoreError) -> Bool {
        if let error = directory.unread { handle(error, about: directory.shown) }
        guard let record = directory.record, let keys = directory.keys else {
            if directory.isNamed {
                problem(directory.shown, "vaultfs.dir: missing or damaged")
            }
            return false
        }
        for entry in try directory.leftovers() {
            problem(
                directory.shownPath(of: entry),
                "a leftover that cannot be removed, and may hold old objects: move it out of the vault")
        }
        // Report a directory of the previous epoch as a whole.
        guard record.epoch == store.keyRing.epochs.current else { return true }
        for entry in try directory.descriptor.allEntries() {
            do throws(StoreError) {
                try directory.checkName(of: entry, under: keys)
                if EntryName.kind(of: entry.bytes) == .sidecar { try removeOrphan(entry, directory) }
            } catch {
                handle(error, about: directory.shownPath(of: entry))
            }
        }
        return false
    }

    /// Removes an orphaned sidecar, left by an interrupted operation. Either key may have encrypted it.
    private func removeOrphan(_ sidecar: Component, _ directory: RekeyDirectory) throws(StoreError) {
        guard try directory.descriptor.isSidecarOrphaned(sidecar) else { return }
        try store.admitChange()
        directory.willChange()
        try directory.descriptor.remove(sidecar)
        try directory.descriptor.synchronize(dataOnly: false)
    }

    /// Throws an error that ends the rekey, also any error of an incomplete step, because it bars all later steps.
    func checkStep(_ error: StoreError) throws(StoreError) {
        if error.endsRekey { throw error }
        if try RekeySteps.isIncomplete(in: store.root) { throw error }
    }
}
