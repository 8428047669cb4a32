internal import CLinux
package import FileSystem
package import Glibc
package import LinuxSystem
internal import Locking
internal import Synchronization
internal import SystemPackage
internal import VaultFormat
package import VaultStore

extension VaultFileSystem {
    /// Returns the node's only `EncryptedFile`. Opens it if necessary.
    func openFile(_ node: Node) throws(StoreError) -> EncryptedFile {
        guard node.isRegularFile else { throw .system(node.isDirectory ? .isDirectory : .invalidArgument) }
        let (file, isOpened) = try onlyFile(of: node)
        // Without `Node.opening`, which a write of the header takes for the node's attributes.
        if isOpened { file.replaceInboxWrap() }
        invalidateSizeIfCut(file, node)
        return file
    }

    private func onlyFile(of node: Node) throws(StoreError) -> (file: EncryptedFile, isOpened: Bool) {
        try node.opening.withLock { (state) throws(StoreError) in
            if let file = state.file {
                if let followed = file.followed { try confirm(followed, file, node) }
                return (file, false)
            }
            let descriptor = try openBacking(node, flags: O_RDONLY)
            try complete(node, descriptor)
            let file = try FileOpening(descriptor, in: store(of: node)).open()
            if let known = state.fileID, known != file.fileID {
                // Another process has replaced the file by one with the same inode number, which gets a node at its
                // next lookup.
                nodes.disown(node)
                throw .system(.staleNFSFileHandle)
            }
            setFile(file, &state, node)
            return (file, true)
        }
    }

    /// Makes the kernel ask for the size if the open, or the reopening of its descriptor for writing, has cut the file.
    private func invalidateSizeIfCut(_ file: EncryptedFile, _ node: Node) {
        // A read-only store shows the shorter length from the start.
        guard !store(of: node).isReadOnly, file.parts.isCutBack.load(ordering: .acquiring),
            file.parts.isCutBack.exchange(false, ordering: .acquiringAndReleasing)
        else { return }
        invalidateSize(of: node)
    }

    /// Makes the kernel ask for the size of a file after an unexpected cut. The file's next open looks it up.
    func invalidateSize(of node: Node) {
        node.isOutdated.store(true, ordering: .releasing)
        attributeObserver.notify(nodes.id(of: node).rawValue)
    }

    /// Checks that an open file still has its name, because another machine may write the vault.
    private func confirm(_ followed: FollowedFile, _ file: EncryptedFile, _ node: Node) throws(StoreError) {
        do throws(StoreError) { try followed.confirm(try openBacking(node, flags: O_RDONLY)) } catch {
            if error == .system(.staleNFSFileHandle) { nodes.disown(node) }
            throw error
        }
        node.protectionClass = file.protectionClass
    }

    private func setFile(_ file: EncryptedFile, _ state: inout Node.OpenState, _ node: Node) {
        state.fileID = file.fileID
        state.file = file
        node.protectionClass = file.protectionClass
        file.parts.attributes.onHiddenWrite.set { node.updateSealing(before: $0.before, after: $0.after) }
    }

    /// Opens a file and truncates it to length 0, even if its length or header is damaged.
    func openTruncated(_ node: Node, _ workspace: Workspace) throws(StoreError) -> EncryptedFile {
        let file: EncryptedFile
        do throws(StoreError) {
            file = try openFile(node)
        } catch .damaged {
            file = try node.opening.withLock { (state) throws(StoreError) -> EncryptedFile in
                // Another thread has truncated the file meanwhile, and has it open.
                if let file = state.file { return file }
                let parentClass = try nodes.name(of: node).map { (name) throws(StoreError) in
                    try directory(name.parent).protectionClass
                }
                let opening = FileOpening(try openBacking(node, flags: O_RDWR), in: store)
                let file = try opening.openTruncated(class: parentClass ?? .complete)
                setFile(file, &state, node)
                return file
            }
        }
        try file.setLength(0, workspace: workspace)
        return file
    }

    func openBacking(_ node: Node, flags: Int32) throws(StoreError) -> Descriptor {
        try atCheckedName(of: node) { (directory, entry) throws(StoreError) -> Descriptor in
            // O_NONBLOCK, because a fifo may have replaced the file.
            let descriptor = try Descriptor(at: directory, entry, flags: flags | O_NONBLOCK)
            guard FileIdentity(try store.status(of: descriptor)) == node.key else { throw .system(.staleNFSFileHandle) }
            if flags & linux_O_PATH == 0 { store.accessTimes.prepare(file: descriptor) }
            return descriptor
        }
    }

    /// open(2) of an existing file. The kernel has checked the permissions.
    /// - Parameter caller: with its groups if `flags` contain O_TRUNC.
    /// - Throws: `.locked`; `.damaged`; the error of `Store.admitChange` for writing; `.system` with errno.
    package func beginOpening(
        _ id: NodeID, flags: Int32, for caller: Caller, workspace: Workspace
    ) throws(StoreError) -> Opening<FileHandle> {
        let node = try nodes.node(id)
        try admit(node, .opening)
        let isTruncating = flags & O_TRUNC != 0
        let isWriting = flags & O_ACCMODE != O_RDONLY || isTruncating
        if isWriting { try admitChange(of: node) }
        let file = try withSpace { () throws(StoreError) in
            let file = isTruncating ? try openTruncated(node, workspace) : try openFile(node)
            if isWriting { try file.prepareForWriting() }
            return file
        }
        invalidateSizeIfCut(file, node)
        // The kernel reads the attributes again after this open.
        if isTruncating && caller.uid != 0 { try dropSetID(node, file.anyDescriptor) { caller } }
        // After O_TRUNC the kernel sets the size itself.
        let isOutdated = node.isOutdated.exchange(false, ordering: .acquiringAndReleasing) && !isTruncating
        return .opened(handle(file, node, flags: flags, isOutdated: isOutdated))
    }

    /// Makes a handle, and counts it until `release`.
    func handle(_ file: EncryptedFile, _ node: Node, flags: Int32, isOutdated: Bool = false) -> FileHandle {
        let handle = FileHandle(file: file, node: node, flags: flags, isOutdated: isOutdated)
        fileHandles.add(1, ordering: .acquiringAndReleasing)
        if handle.isWriting { writers.add(1, ordering: .acquiringAndReleasing) }
        return handle
    }

    package func create(
        _ name: [UInt8], in parent: NodeID, mode: mode_t, flags: Int32, for caller: Caller
    ) throws(StoreError) -> (entry: NodeEntry, handle: FileHandle) {
        let (parentNode, directory) = try directoryToChange(parent)
        let file = try withSpace { () throws(StoreError) in
            try directory.createFile(name, mode: mode, owner: caller.owner)
        }
        let status = try file.reader.status()
        let node = intern(status, parent: parentNode, entry: try directory.encode(name).entry, isNew: true)
        node.isBeingMade.store(true, ordering: .releasing)
        // Make the handle first, because a lock wipes the keys of a file without a handle.
        let handle = handle(file, node, flags: flags)
        node.opening.withLock { setFile(file, &$0, node) }
        countArrival(status, in: parentNode)
        return (NodeEntry(id: nodes.id(of: node), attributes: plaintextAttributes(status, of: node)), handle)
    }

    /// Pages stay valid across opens: usually only this daemon changes the vault, and mtime shows other changes. If
    /// another machine writes the vault, each open drops them. A file with an unauthenticated tail bypasses the page
    /// cache, because the kernel would fill the rest of a page with zeros.
    package func pageCaching(of handle: FileHandle) -> PageCaching {
        if handle.isOutdated { return .outdated }
        return handle.file.parts.hasUnsealedTail ? .bypass : store.followsWriter ? .drop : .keep
    }

    package func release(_ handle: FileHandle) {
        // The first writer may have given the file a new id.
        if handle.isWriting { handle.node.opening.withLock { $0.fileID = handle.file.fileID } }
        let left = handle.file.parts.openHandles.subtract(1, ordering: .acquiringAndReleasing).newValue
        fileHandles.subtract(1, ordering: .acquiringAndReleasing)
        if handle.isWriting, writers.subtract(1, ordering: .sequentiallyConsistent).newValue == 0 {
            observer?.noWriterLeft()
        }
        if left == 0 {
            handle.node.isBeingMade.store(false, ordering: .releasing)
            arrivals.removeInUse(handle.node.key)
            sealLater(handle.file, of: handle.node)
            // During a lock, a file of this class is purged at its last close.
            if gate.state != .unlocked, handle.file.protectionClass == .unlessOpen {
                observer?.closed(inode: nodes.id(of: handle.node).rawValue) { [node = handle.node] in
                    if let file = node.openFile, !file.isBusy { file.forgetKeys() }
                }
            }
        }
    }

    /// Seals a written file once its data is durable and in place. Keeps its node until then, even if the kernel
    /// forgets it, because a second `EncryptedFile` of a new node would not know of this seal or of the log's changes.
    func sealLater(_ file: EncryptedFile, of node: Node) {
        // Skip a file without a name, because it is about to vanish.
        guard !store.isReadOnly, file.needsSeal || file.isLogged, nodes.retain(node) else { return }
        let isNew = store.durability.sealer.add(file) { [nodes] in nodes.forget(node, count: 1) }
        if !isNew { nodes.forget(node, count: 1) }
        // A thread has removed the last name before the sealer got the file.
        if nodes.hasLeft(node) { store.durability.sealer.forget(file) }
    }

    /// Throws if a lock refuses the use of an open file.
    @inline(__always)
    func admit(_ handle: FileHandle) throws(StoreError) {
        if !gate.isUnlocked() { try admitWhileLocked(handle.node, .handle) }
        // They were unreadable at the unlock. A failure now is damage: `EIO`, not `ENOKEY`.
        if !handle.file.hasKeys { try handle.file.restoreKeys() }
    }

    package func read(
        _ handle: FileHandle, at plaintextOffset: UInt64, into buffer: UnsafeMutableRawBufferPointer,
        workspace: Workspace
    ) throws(StoreError) -> Int {
        try admit(handle)
        return try handle.file.read(
            at: plaintextOffset, into: buffer, isAhead: handle.sequence.isAhead, workspace: workspace)
    }

    package func readAhead(_ handle: FileHandle, at plaintextOffset: UInt64, workspace: Workspace) -> UInt64? {
        // Ignore errors, because the read itself reports them.
        try? handle.file.readAhead(at: plaintextOffset, workspace: workspace)
    }

    /// - Parameter isWriteBack: true if the kernel writes a dirty mapped page back. The program changed it before the
    ///   lock, so it is accepted while the file's keys are in memory.
    package func write(
        _ handle: FileHandle, _ data: UnsafeRawBufferPointer, at plaintextOffset: UInt64, isWriteBack: Bool = false,
        workspace: Workspace
    ) throws(StoreError) -> Int {
        if isWriteBack {
            if gate.state != .unlocked { store.counters.writtenBackBytes.count(data.count) }
        } else {
            if !gate.admitsWrites() { try admitWhileLocked(handle.node, .handle) }
            if !handle.file.hasKeys { try handle.file.restoreKeys() }
        }
        var count = 0
        repeat {
            count += try withSpace { () throws(StoreError) in
                try handle.file.write(
                    data.slice(count...), at: plaintextOffset + UInt64(count), workspace: workspace)
            }
            // Write everything, because the kernel ignores the count of a written-back page (fuse_writepage_end in
            // fs/fuse/file.c). The rest would be lost without an error.
        } while isWriteBack && count < data.count
        switch handle.writeDurability {
        case .later: break
        case .withoutTimes: try synchronize(handle, dataOnly: true)
        case .entirely: try synchronize(handle, dataOnly: false)
        }
        return count
    }

    package func synchronize(_ handle: FileHandle, dataOnly: Bool) throws(StoreError) {
        store.log.awaitRenewal()
        try handle.synchronize(dataOnly: dataOnly)
    }

    package func allocate(
        _ handle: FileHandle, mode: Int32, range: Range<UInt64>, workspace: Workspace
    ) throws(StoreError) {
        try admit(handle)
        let file = handle.file
        let keepsSize = mode & linux_FALLOC_FL_KEEP_SIZE != 0
        try withSpace { () throws(StoreError) in
            switch mode & ~linux_FALLOC_FL_KEEP_SIZE {
            case 0: try file.allocate(range, keepsSize: keepsSize, workspace: workspace)
            case linux_FALLOC_FL_PUNCH_HOLE where keepsSize: try file.punchHole(range, workspace: workspace)
            case linux_FALLOC_FL_ZERO_RANGE: try file.zeroRange(range, keepsSize: keepsSize, workspace: workspace)
            default: throw .system(.notSupported)
            }
        }
    }

    package func seek(_ handle: FileHandle, from plaintextOffset: UInt64, toHole: Bool) throws(StoreError) -> UInt64 {
        try admit(handle)
        guard let found = try handle.file.seek(from: plaintextOffset, toHole: toHole) else {
            throw .system(.noSuchAddressOrDevice)
        }
        return found
    }

    /// copy_file_range(2), at most one reply buffer. The data does not pass through the kernel.
    package func copy(
        from source: FileHandle, at sourceOffset: UInt64, to destination: FileHandle, at destinationOffset: UInt64,
        count: Int, workspace: Workspace
    ) throws(StoreError) -> Int {
        let buffer = workspace.reply.slice(..<min(count, workspace.reply.count))
        let had: Int
        do throws(StoreError) {
            had = try read(source, at: sourceOffset, into: buffer, workspace: workspace)
        } catch .damaged(let reason) {
            // Report the source's damage here, because the caller would report it for the destination.
            damageObserver.notify(Damage(reason, at: objectPath(of: source.node)))
            throw .refused(.ioError)
        }
        if had == 0 { return 0 }
        let data = UnsafeRawBufferPointer(buffer.slice(..<had))
        return try write(destination, data, at: destinationOffset, workspace: workspace)
    }

    package func synchronizeEverything() throws(StoreError) {
        if store.isReadOnly { return }
        var failure: StoreError?
        do throws(StoreError) {
            for node in nodes.all {
                guard let file = node.openFile else { continue }
                do throws(StoreError) {
                    try store.durability.activity.during { () throws(StoreError) in
                        try file.synchronize(dataOnly: false)
                    }
                } catch {
                    // Go on if only this file fails. But if the store does not answer, do not wait for it once per
                    // file.
                    failure = failure ?? error
                    try store.durability.confirm()
                }
                sealLater(file, of: node)
            }
            try store.durability.synchronizeEverything()
        } catch {
            failure = failure ?? error
        }
        if let failure {
            failed(failure)
            throw failure
        }
    }

    /// Seals all files at the unmount, after the last request. Failures become faults of the store.
    package func shutDown() {
        store.durability.stop()
        store.completion?.stop()
        if store.isReadOnly { return }
        // After a SIGTERM, programs still have files open, and will not close them.
        for node in nodes.all {
            guard let file = node.openFile else { continue }
            // Sync sealed files too, because the next writer may be another machine, which cannot see this page cache.
            do throws(StoreError) { try file.synchronize(dataOnly: true) } catch { failed(error) }
            if !nodes.hasLeft(node) { store.faults.addIfRemoved(file) }
            sealLater(file, of: node)
        }
        store.durability.finish()
        store.releaseWriterLock()
    }
}

/// The durability of a write when it returns: of nothing, of the data and the length (O_DSYNC), or of all (O_SYNC).
enum WriteDurability { case later, withoutTimes, entirely }

/// An open file and its flags: the result of open(2). Any thread.
package final class FileHandle: OpenFile {
    package let file: EncryptedFile
    package let sequence = ReadSequence()
    let node: Node
    let isWriting: Bool
    /// True if the file was cut after the kernel got its size.
    let isOutdated: Bool
    let writeDurability: WriteDurability
    /// Number of the file's failed synchronizations that this handle has reported, or that came before it.
    private let reportedFailures: Atomic<Int>

    init(file: EncryptedFile, node: Node, flags: Int32, isOutdated: Bool) {
        self.file = file
        self.node = node
        isWriting = flags & O_ACCMODE != O_RDONLY
        self.isOutdated = isOutdated
        reportedFailures = Atomic(file.parts.syncs.reports.load(ordering: .acquiring))
        // O_SYNC contains O_DSYNC's bit.
        writeDurability = flags & O_SYNC == O_SYNC ? .entirely : flags & O_DSYNC != 0 ? .withoutTimes : .later
        file.parts.openHandles.add(1, ordering: .acquiringAndReleasing)
    }

    /// fsync(2). Also fails once for each earlier failure in another handle or in the sealer.
    func synchronize(dataOnly: Bool) throws(StoreError) {
        let result = Result { () throws(StoreError) in try file.synchronize(dataOnly: dataOnly) }
        let failures = file.parts.syncs.reports.load(ordering: .acquiring)
        let reported = reportedFailures.exchange(failures, ordering: .acquiringAndReleasing)
        try result.get()
        if failures > reported { throw .refused(.ioError) }
    }
}
