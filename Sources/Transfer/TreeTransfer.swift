internal import FileSystem
internal import Glibc
internal import LinuxSystem
internal import Synchronization

/// Copies a tree, or compares a copy with its source, on several threads. Its memory does not grow with the tree, except
/// for files with several names of which some are not copied yet.
///
/// Each object is made under a temporary name and gets its own name when it is whole. So an interrupted transfer goes on
/// with what is missing, and inside a large file. An object that is there with the same type, size and time counts as the
/// same. A file with the same contents gets its source's time. No directory is ever replaced.
package final class TreeTransfer<Source: TransferTree, Destination: TransferTree>: Sendable
where Source.Workspace == Destination.Workspace {
    package typealias Workspace = Source.Workspace
    typealias Directory = TransferDirectory<Source.Item, Destination.Item>

    enum Work: Sendable {
        case directory(Directory)
        case names(Directory, [[UInt8]])
        case file([UInt8], Directory, as: [UInt8])
    }

    /// The number of names of a directory that a thread takes at a time.
    private static var batch: Int { 32 }

    let source: Source
    let destination: Destination
    let options: TransferOptions
    let observer: TransferObserver
    let links = HardLinks()
    private let pool = WorkPool<Work>()
    private let state = Mutex((totals: TransferTotals(), failure: TransferError?.none, root: Destination.Item?.none))

    package init(
        from source: Source, to destination: Destination, _ options: TransferOptions, _ observer: TransferObserver
    ) {
        self.source = source
        self.destination = destination
        self.options = options
        self.observer = observer
    }

    package var totals: TransferTotals { state.withLock { $0.totals } }

    func count(_ body: (inout TransferTotals) -> Void) {
        state.withLock { body(&$0.totals) }
    }

    /// The destination's root, for lookups by path.
    var destinationRoot: Destination.Item? { state.withLock { $0.root } }

    /// Makes one directory what another is.
    /// - Parameters:
    ///   - isNew: the destination was made for this transfer. One that was there keeps its owner, mode, attributes and
    ///     times, unless a transfer that has not ended made it.
    ///   - workspaces: one for each thread.
    ///   - whileWaiting: called by this thread several times a second.
    package func transferTree(
        _ from: Source.Item, into directory: Destination.Item, isNew: Bool, _ workspaces: [Workspace],
        whileWaiting: (TransferTotals) -> Void
    ) throws(TransferError) {
        let status: stat
        do throws(StoreError) { status = try source.status(of: from) } catch {
            throw .unusable(path: [], error)
        }
        let isOwn: Bool
        do throws(StoreError) { isOwn = isNew ? true : try isMarked(directory) } catch {
            throw .unusable(path: [], error)
        }
        if isNew && !options.isComparing {
            do throws(StoreError) { _ = try destination.makeFile(TemporaryName.mark, in: directory) } catch {
                throw .unusable(path: [], error)
            }
        }
        let root = Directory(from, directory, status: status, isNew: isNew, keepsOwn: !isOwn)
        try run(.directory(root), root, workspaces, whileWaiting)
    }

    /// Copies one object that is not a directory.
    package func transferFile(
        _ name: [UInt8], in from: Source.Item, as newName: [UInt8], into directory: Destination.Item,
        _ workspaces: [Workspace], whileWaiting: (TransferTotals) -> Void
    ) throws(TransferError) {
        let root = Directory(from, directory, status: nil, isNew: false)
        try run(.file(name, root, as: newName), root, Array(workspaces.prefix(1)), whileWaiting)
    }

    private func run(
        _ work: Work, _ root: Directory, _ workspaces: [Workspace], _ whileWaiting: (TransferTotals) -> Void
    ) throws(TransferError) {
        state.withLock { $0.root = root.destination }
        let bodies = workspaces.map { workspace -> @Sendable (Work) -> Void in
            // One thread uses it, and no other.
            nonisolated(unsafe) let workspace = workspace
            return { [self] work in perform(work, workspace) }
        }
        do throws(StoreError) {
            try pool.run(work, bodies) { whileWaiting(totals) }
        } catch {
            throw .unusable(path: [], error)
        }
        if let failure = state.withLock({ $0.failure }) { throw failure }
    }

    private func perform(_ work: Work, _ workspace: Workspace) {
        switch work {
        case .directory(let directory):
            sweep(directory)
            attempt(directory.path) { () throws(TransferFailure) in try transferContents(of: directory, workspace) }
            end(directory, workspace)
        case .names(let directory, let names):
            for name in names {
                attempt(directory.path(of: name)) { () throws(TransferFailure) in
                    try transfer(name, in: directory, as: name, workspace)
                }
            }
            end(directory, workspace)
        case .file(let name, let directory, let newName):
            sweep(directory)
            attempt(name) { () throws(TransferFailure) in
                try transfer(name, in: directory, as: newName, workspace)
            }
        }
    }

    /// Gives work to another thread, or does it if enough waits.
    private func share(_ work: Work, _ workspace: Workspace) {
        if !pool.offer(work) { perform(work, workspace) }
    }

    /// Runs `body`, and reports a failure that concerns this path alone.
    func attempt(_ path: [UInt8], _ body: () throws(TransferFailure) -> Void) {
        guard !observer.isStopped() else { return stop(.stopped) }
        // A directory is not finished if the transfer has ended early.
        if state.withLock({ $0.failure != nil }) { return }
        do throws(TransferFailure) {
            try body()
        } catch {
            // Stopping a transfer also fails a thread that waits for a key.
            if observer.isStopped() { return stop(.stopped) }
            switch error {
            case .whole(let error): stop(error)
            case .damaged(let text) where options.savesDamaged:
                count { $0.damaged += 1 }
                observer.damaged(path, [], text)
            case .entry(let text), .damaged(let text):
                count { $0.failures += 1 }
                observer.failed(path, text)
            }
        }
    }

    /// The first reason is kept.
    private func stop(_ error: TransferError) {
        state.withLock { if $0.failure == nil { $0.failure = error } }
        pool.stop()
    }

    // MARK: Directories

    private func transferContents(of directory: Directory, _ workspace: Workspace) throws(TransferFailure) {
        var listing = try reading(try source.list(directory.source))
        var names: [[UInt8]] = []
        while let name = try reading(try source.next(&listing)) {
            if TemporaryName.isOne(name) {
                if !options.isComparing {
                    attempt(directory.path(of: name)) { () throws(TransferFailure) in throw .isTemporary }
                }
                continue
            }
            names.append(name)
            if names.count == Self.batch {
                share(names, of: directory, workspace)
                names = []
                if observer.isStopped() { throw .whole(.stopped) }
            }
        }
        share(names, of: directory, workspace)
    }

    private func share(_ names: [[UInt8]], of directory: Directory, _ workspace: Workspace) {
        if names.isEmpty { return }
        directory.begin()
        share(.names(directory, names), workspace)
    }

    /// Ends one piece of a directory's work. The last piece finishes the directory and ends a piece of its parent.
    private func end(_ directory: Directory, _ workspace: Workspace) {
        var current: Directory? = directory
        while let directory = current, directory.end() {
            if let status = directory.status {
                attempt(directory.path) { () throws(TransferFailure) in
                    try finish(directory, status, workspace)
                    count { $0.directories += 1 }
                }
            }
            current = directory.parent
        }
    }

    private func finish(
        _ directory: Directory, _ status: stat, _ workspace: Workspace
    ) throws(TransferFailure) {
        if options.isComparing { return }
        // With a failure an unfinished file may still be wanted.
        if totals.failures == 0 { sweep(directory, includingResumable: true) }
        if directory.keepsOwn { return }
        try keep(status, of: directory.source, on: directory.destination, path: directory.path, workspace)
        if directory.parent == nil { try removeMark(in: directory, status, workspace) }
    }

    /// Transfers one name of a directory.
    private func transfer(
        _ name: [UInt8], in directory: Directory, as newName: [UInt8], _ workspace: Workspace
    ) throws(TransferFailure) {
        guard let item = try reading(try source.find(name, in: directory.source)) else {
            throw .entry("it was removed meanwhile")
        }
        var object = SourceObject(
            item: item, status: try reading(try source.status(of: item)),
            name: newName, path: directory.path(of: name))
        if options.leavesOut(object.status) {
            throw .entry("it is the vault or source itself, and left out")
        }
        if options.contentsOnly && ![S_IFREG, S_IFLNK, S_IFDIR].contains(object.kind) {
            if options.isComparing { return }
            throw .entry("neither a file nor a directory nor a link")
        }
        if options.dropsSpecial && (object.kind == S_IFCHR || object.kind == S_IFBLK) {
            if !options.isComparing { count { $0.lost.devices += 1 } }
            return
        }
        if object.kind == S_IFDIR {
            let inside = try enter(object, in: directory, workspace)
            directory.begin()
            return share(.directory(inside), workspace)
        }
        if object.kind == S_IFREG && !source.knowsLengths { try findLength(of: &object, in: directory, workspace) }
        if options.isComparing {
            try compare(object, in: directory, workspace)
        } else {
            try copy(object, in: directory, workspace)
        }
    }

    /// Opens a file to get its exact length. That can take its key, so a copy with another time is refused before.
    private func findLength(
        of object: inout SourceObject<Source.Item>, in directory: Directory, _ workspace: Workspace
    ) throws(TransferFailure) {
        if !options.isComparing, let existing = try existing(object, in: directory) {
            let found = try writing(object.path, try destination.status(of: existing))
            if found.st_ino == object.status.st_ino && found.st_dev == object.status.st_dev {
                throw .entry("the destination is the source")
            }
            guard options.isReplacing || found.st_mode & S_IFMT == S_IFREG && options.hasSameTime(found, object.status)
            else { throw .differs }
        }
        let content = try reading(try source.open(object.item, workspace))
        object.status = try withExtendedLifetime(content) { () throws(TransferFailure) in
            try reading(try source.status(of: object.item))
        }
    }
}
