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

    /// A directory whose contents are being transferred. Any thread.
    final class Directory: Sendable {
        let source: Source.Item
        let destination: Destination.Item
        /// Below both roots; empty for the roots.
        let path: [UInt8]
        let parent: Directory?
        /// The source's status when it was entered; nil if only one file of it is transferred.
        let status: stat?
        /// True for a destination that was there and that the user named. It keeps its owner, mode, attributes and times.
        let keepsOwn: Bool
        /// True if the destination was just made, so that no earlier transfer has left anything in it.
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

        /// Returns true for the last piece.
        func end() -> Bool { pending.subtract(1, ordering: .acquiringAndReleasing).newValue == 0 }

        func path(of name: [UInt8]) -> [UInt8] { path.isEmpty ? name : path + [UInt8(ascii: "/")] + name }
    }

    /// An object in the source that is being transferred.
    struct Object {
        let item: Source.Item
        /// Taken before any content was read.
        var status: stat
        let directory: Directory
        /// At the destination.
        let name: [UInt8]
        /// Below the source.
        let path: [UInt8]

        var kind: mode_t { status.st_mode & S_IFMT }
        /// True for a device node, but not for the whiteout of an overlayfs (0:0), which no driver serves and every
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
    /// Called by any thread with a path below the source, and why it is not transferred.
    let failed: @Sendable ([UInt8], String) -> Void
    /// Called by any thread with a path below the source, its ranges that do not verify (none: nothing of it verifies),
    /// and why.
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

    /// The first reason is kept.
    func stop(_ error: TransferError) {
        state.withLock { if $0.failure == nil { $0.failure = error } }
        pool.stop()
    }

    /// Makes one directory what another is.
    /// - Parameters:
    ///   - isNew: the destination was made for this transfer. One that was there keeps its owner, mode, attributes and
    ///     times, unless a transfer that has not ended made it.
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

    /// Copies one object that is not a directory.
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
            // One thread uses it, and no other.
            nonisolated(unsafe) let worker = TransferWorker(transfer: self, workspace: workspace)
            return { work in worker.perform(work) }
        }
        do throws(StoreError) { try pool.run(work, bodies) { whileWaiting(totals) } } catch {
            throw .unusable(path: [], error)
        }
        if let failure { throw failure }
    }

    /// True if a transfer that has not ended has made the directory.
    private func isMarked(_ directory: Destination.Item) throws(StoreError) -> Bool {
        guard let mark = try destination.find(TemporaryName.mark, in: directory) else { return false }
        // Any user who can write to the directory can make a mark. Only our own counts.
        return try destination.status(of: mark).st_uid == geteuid() && destination.isStale(mark)
    }
}
