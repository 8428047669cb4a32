internal import Glibc
internal import LinuxSystem
internal import Synchronization

/// Copies a tree, or compares a copy with its source, on several threads. Its memory stays bounded, except for files
/// with several names, until all of these are copied.
///
/// The transfer makes each object under a temporary name and renames it when it is whole. So after an interruption it
/// goes on with the missing objects, and inside a large file. An existing object of the same type, size and time counts
/// as the same. In a vault, a file that lost only its times in a seal gets them back. Directories are never replaced.
package final class TreeTransfer<Source: TransferTree, Destination: TransferTree>: Sendable
where Source.Workspace == Destination.Workspace {
    package typealias Workspace = Source.Workspace

    /// A directory in transfer. Any thread.
    final class Directory: Sendable {
        let source: Source.Item
        let destination: Destination.Item
        /// The path below both roots; empty for the roots.
        let path: [UInt8]
        let parent: Directory?
        /// The source's status on entering; nil if only one file of it is transferred.
        let status: stat?
        /// True for an existing destination named by the user. It keeps its owner, mode, attributes and times.
        let keepsOwn: Bool
        /// True if this transfer made the destination, so leftovers of earlier transfers cannot be in it.
        let isNew: Bool
        let depth: Int
        /// The number of unfinished pieces of work.
        private let pending = Atomic<Int>(1)

        init(
            _ source: Source.Item, _ destination: Destination.Item, path: [UInt8] = [], parent: Directory? = nil,
            status: stat?, isNew: Bool, keepsOwn: Bool = false
        ) {
            (self.source, self.destination) = (source, destination)
            (self.path, self.parent, self.status) = (path, parent, status)
            (self.isNew, self.keepsOwn) = (isNew, keepsOwn)
            depth = (parent?.depth ?? 0) + 1
        }

        func begin() { pending.add(1, ordering: .relaxed) }

        /// Ends one piece of work. Returns true for the last piece.
        func end() -> Bool { pending.subtract(1, ordering: .acquiringAndReleasing).newValue == 0 }

        func path(of name: [UInt8]) -> [UInt8] { path.isEmpty ? name : path + [UInt8(ascii: "/")] + name }
    }

    /// An object of the source in transfer.
    struct Object {
        let item: Source.Item
        /// The status before any content was read.
        var status: stat
        let directory: Directory
        /// The name at the destination.
        let name: [UInt8]
        /// The path below the source.
        let path: [UInt8]

        var kind: mode_t { status.st_mode & S_IFMT }
        /// True for a device node, but not for the whiteout of an overlayfs (0:0), which has no driver and which every
        /// user can make.
        var isDevice: Bool { kind == S_IFBLK || kind == S_IFCHR && status.st_rdev != 0 }
    }

    enum Work: Sendable {
        case directory(Directory)
        case names(Directory, [[UInt8]])
        case file([UInt8], Directory, as: [UInt8])
    }

    let source: Source
    let destination: Destination
    let options: TransferOptions
    /// Called by any thread with a path below the source, and the reason for which it is not transferred.
    let failed: @Sendable ([UInt8], String) -> Void
    /// Called by any thread with a path below the source, its damaged ranges (none: all is damaged), and the reason.
    let damaged: @Sendable ([UInt8], [Range<UInt64>], String) -> Void
    /// Called by any thread before each batch of at most 1 MiB.
    let isStopped: @Sendable () -> Bool
    let links = HardLinks()
    let pool = WorkPool<Work>()
    private let state = Mutex((totals: TransferTotals(), failure: TransferError?.none))

    package init(
        from source: Source, to destination: Destination, _ options: TransferOptions,
        failed: @escaping @Sendable ([UInt8], String) -> Void,
        damaged: @escaping @Sendable ([UInt8], [Range<UInt64>], String) -> Void,
        isStopped: @escaping @Sendable () -> Bool
    ) {
        (self.source, self.destination, self.options) = (source, destination, options)
        (self.failed, self.damaged, self.isStopped) = (failed, damaged, isStopped)
    }

    package var totals: TransferTotals { state.withLock { $0.totals } }

    /// Nil if the transfer has not ended early.
    var failure: TransferError? { state.withLock { $0.failure } }

    func count(_ body: (inout TransferTotals) -> Void) { state.withLock { body(&$0.totals) } }

    /// Ends the transfer early, for the first reason given.
    func stop(_ error: TransferError) {
        state.withLock { if $0.failure == nil { $0.failure = error } }
        pool.stop()
    }

    /// Makes one directory a copy of another.
    /// - Parameters:
    ///   - isNew: the destination was made for this transfer. An existing one keeps its owner, mode, attributes and
    ///     times, unless it was made by a transfer that has not ended.
    ///   - workspaces: one for each thread.
    ///   - whileWaiting: called by this thread several times a second.
    /// - Throws: the reason for which the transfer ended early: `.stopped`, or `.unusable`.
    package func transferTree(
        _ from: Source.Item, into directory: Destination.Item, isNew: Bool, _ workspaces: [Workspace],
        whileWaiting: (TransferTotals) -> Void
    ) throws(TransferError) {
        let root: Directory
        do throws(StoreError) {
            let status = try source.status(of: from)
            let isOwn = isNew ? true : try isMarked(directory)
            if isNew && !options.isComparing { _ = try destination.makeFile(TemporaryName.mark, in: directory) }
            root = Directory(from, directory, status: status, isNew: isNew, keepsOwn: !isOwn)
        } catch {
            throw .unusable(path: [], error)
        }
        try run(.directory(root), workspaces, whileWaiting)
    }

    /// Copies one object other than a directory.
    /// - Throws: the reason for which the transfer ended early.
    package func transferFile(
        _ name: [UInt8], in from: Source.Item, as newName: [UInt8], into directory: Destination.Item,
        _ workspaces: [Workspace], whileWaiting: (TransferTotals) -> Void
    ) throws(TransferError) {
        let root = Directory(from, directory, status: nil, isNew: false)
        try run(.file(name, root, as: newName), Array(workspaces.prefix(1)), whileWaiting)
    }

    private func run(
        _ work: Work, _ workspaces: [Workspace], _ whileWaiting: (TransferTotals) -> Void
    ) throws(TransferError) {
        let bodies = workspaces.map { workspace -> @Sendable (Work) -> Void in
            // Each worker belongs to one thread.
            nonisolated(unsafe) let worker = TransferWorker(transfer: self, workspace: workspace)
            return { work in worker.perform(work) }
        }
        do throws(StoreError) { try pool.run(work, bodies) { whileWaiting(totals) } } catch {
            throw .unusable(path: [], error)
        }
        if let failure { throw failure }
    }

    /// Returns true if an unfinished transfer has made the directory.
    private func isMarked(_ directory: Destination.Item) throws(StoreError) -> Bool {
        guard let mark = try destination.find(TemporaryName.mark, in: directory) else { return false }
        // Count only a mark of our own, because any user who can write to the directory can make one.
        return try destination.status(of: mark).st_uid == geteuid() && destination.isStale(mark)
    }
}
