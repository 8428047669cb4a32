internal import FileSystem
internal import Glibc
internal import LinuxSystem
internal import Synchronization
package import VaultStore

/// Copies a tree, or compares a copy with its source, on several threads, in memory that does not grow with the tree (but
/// for files with several names, of which some are yet to come).
///
/// Everything is made under a temporary name beside its own, which it gets when it is whole: a transfer that was
/// interrupted, however, goes on with what is not there. What is there with the same type, size and time is taken for
/// the same; a file with the same contents gets its source's. No directory is ever replaced.
package final class TreeTransfer<Source: TransferTree, Destination: TransferTree>: Sendable {
    typealias Directory = TransferDirectory<Source.Item, Destination.Item>

    /// What a thread takes from the others.
    enum Work: Sendable {
        case directory(Directory)
        case names(Directory, [[UInt8]])
        case file([UInt8], Directory, as: [UInt8])
    }

    /// How many names of a directory a thread takes at a time.
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

    /// The destination's root, for what is known by its path.
    var destinationRoot: Destination.Item? { state.withLock { $0.root } }

    /// Makes one directory what another is.
    /// - Parameters:
    ///   - isNew: the destination was made for this. One that was there keeps its owner, mode, attributes and times, unless a
    ///     transfer that has not ended made it.
    ///   - workspaces: one for each thread.
    ///   - whileWaiting: called by this thread, several times a second.
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

    /// Makes the file of one name in a directory what the one of another name in another is.
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
            // Each is handed to one thread, and used by no other.
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

    /// Gives work to another thread, or does it where enough waits.
    private func share(_ work: Work, _ workspace: Workspace) {
        if !pool.offer(work) { perform(work, workspace) }
    }

    /// Runs `body`, and reports what of it concerns this path alone.
    func attempt(_ path: [UInt8], _ body: () throws(TransferFailure) -> Void) {
        guard !observer.isStopped() else { return stop(.stopped) }
        do throws(TransferFailure) {
            try body()
        } catch {
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
        var listing = try reading { () throws(StoreError) in try source.list(directory.source) }
        var names: [[UInt8]] = []
        while let name = try reading({ () throws(StoreError) in try source.next(&listing) }) {
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

    /// One piece of a directory's work is done: after the last it is finished, and its parent has one less.
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
        if options.isComparing || directory.keepsOwn { return }
        try keep(status, of: directory.source, on: directory.destination, path: directory.path, workspace)
        // In others there is none.
        if directory.parent == nil { try removeMark(in: directory, status, workspace) }
    }

    /// Transfers whatever has a name.
    private func transfer(
        _ name: [UInt8], in directory: Directory, as newName: [UInt8], _ workspace: Workspace
    ) throws(TransferFailure) {
        guard let item = try reading({ () throws(StoreError) in try source.find(name, in: directory.source) }) else {
            throw .entry("it was removed meanwhile")
        }
        let object = SourceObject(
            item: item, status: try reading { () throws(StoreError) in try source.status(of: item) },
            name: newName, path: directory.path(of: name))
        if options.leavesOut(object.status) {
            throw .entry("it is the vault itself, and left out")
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
        if options.isComparing {
            try compare(object, in: directory, workspace)
        } else {
            try copy(object, in: directory, workspace)
        }
    }
}
