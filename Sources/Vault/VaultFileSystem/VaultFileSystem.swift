internal import CLinux
package import FileSystem
package import Glibc
package import LinuxSystem
package import Locking
internal import Synchronization
internal import SystemPackage
internal import VaultFormat
package import VaultStore

/// A vault as a POSIX file system: nodes, names, attributes and open files of a `Store`. Independent of libfuse. Any
/// thread. The kernel lets one request at a time change a directory, and checks permissions (default_permissions),
/// unless only this process's user can enter the mount.
package final class VaultFileSystem: Sendable {
    package let store: Store
    private let conflictStore: Store
    let nodes: NodeTable<Node>
    let directories = DirectoryCache<Node, OpenDirectory>()
    let rootDirectory: OpenDirectory
    package let gate: LockGate
    let openDirectories = Mutex<[ObjectIdentifier: DirectoryHandle]>([:])
    /// Entries that a listing has judged to be other programs', and how many are remembered.
    let foreignEntries = Mutex<Set<FileStamp>>([])
    static let mostForeignEntries = 10_000
    /// The stored paths of the conflict copies that programs have listed or opened, for `status`.
    private let conflictCopies = Mutex<Set<[UInt8]>>([])
    private static let mostConflictCopies = 250
    let arrivals = Arrivals()
    /// Number of file handles, and of the writing ones. A grace ends when there are no writing ones.
    let fileHandles = Atomic<Int>(0)
    let writers = Atomic<Int>(0)
    /// Called with inodes whose attributes were changed by a request without attributes in its reply. Set if a kernel
    /// sends requests on behalf of programs, unlike an import or export.
    let attributeObserver = Observer<UInt64>()
    /// Called with entries whose names do not authenticate.
    let damageObserver = Observer<Damage>()
    /// Set once a controller can lock this file system.
    let lockController = Mutex<LockController?>(nil)

    /// - Throws: `.damaged` if the root's record does not authenticate.
    package init(store: Store, gate: LockGate = LockGate()) throws(StoreError) {
        self.store = store
        conflictStore = Store(forConflictCopiesIn: store)
        self.gate = gate
        let pinned = try store.root.openedAgain(flags: linux_O_PATH | O_DIRECTORY)
        let root = Node(key: FileIdentity(try pinned.status()), kind: S_IFDIR)
        rootDirectory = try Self.open(pinned, of: root, isRoot: true, in: store)
        nodes = NodeTable(root: root)
        if !store.isReadOnly { try? rootDirectory.sweep() }
    }

    /// Returns the store with the rules for this node's file.
    func store(of node: Node) -> Store {
        node.isConflictCopy ? conflictStore : store
    }

    /// Must be called before a change of an object or its attributes.
    /// - Throws: as `Store.admitChange`. `EROFS` also for a conflict copy, and `ESTALE`, then `EROFS`, for an open file
    ///   that has become one.
    func admitChange(of node: Node) throws(StoreError) {
        try store(of: node).admitChange()
        guard node.hasCopyName.load(ordering: .relaxed), !hasOwnName(node) else { return }
        // After ESTALE the kernel looks the name up again (LOOKUP_REVAL in fs/namei.c). If it still leads here, it is
        // the copy's.
        let isAgain = node.wasStale.exchange(true, ordering: .relaxed)
        if !isAgain { throw .system(.staleNFSFileHandle) }
        node.wasStale.store(false, ordering: .relaxed)
        throw .refused(.readOnlyFileSystem)
    }

    /// Returns true if a name other than a conflict copy's still leads to the node.
    private func hasOwnName(_ node: Node) -> Bool {
        nodes.names(of: node).contains { name in
            let isAttached = name.parent === nodes.root || nodes.path(of: name.parent).first?.parent === nodes.root
            guard isAttached, !name.parent.isConflictCopy, EntryName.kind(of: name.entry.bytes) != .conflictCopy else {
                return false
            }
            return (try? pinDirectory(name.parent).status(of: name.entry)).map(FileIdentity.init) == node.key
        }
    }

    /// Returns the node's open directory, with its keys.
    /// - Throws: `.locked` if its class's key was wiped.
    func directory(_ node: Node) throws(StoreError) -> OpenDirectory {
        if node === nodes.root {
            if rootDirectory.keys.isForgotten { try rootDirectory.restoreKeys() }
            return rootDirectory
        }
        guard node.isDirectory else { throw .system(.notDirectory) }
        // Another machine may have replaced the directory or its record.
        if let found = directories.find(node),
            !store.followsWriter || monotonicMilliseconds() - found.openedAt < FollowedFile.checkInterval
        {
            return found
        }
        if let removed = node.opening.withLock({ $0.removedDirectory }) { return removed }
        let pinned = try pinDirectory(node)
        try complete(node, pinned)
        let opened = try Self.open(pinned, of: node, isRoot: false, in: store)
        // Every directory above is open, because finding this one opened it.
        if repeatsSecret(node, of: nodes.path(of: node).map(\.parent)) { throw OpenDirectory.repeated }
        directories.insert(opened, for: node)
        return opened
    }

    /// Returns true if a directory has the secret of one above it (FileFormat: Directory-4).
    func repeatsSecret(_ node: Node, of above: @autoclosure () -> [Node]) -> Bool {
        guard let own = node.directoryClass, own.mayRepeatSecret else { return false }
        return above().contains { $0.directoryClass.map(own.hasSecret) ?? false }
    }

    /// Checks, if another machine writes the vault, that names were read, or not found, with the directory's current
    /// keys.
    /// - Throws: `ESTALE`, or `EIO` if a rekey has come between.
    func confirmKeys(of directory: OpenDirectory, _ node: Node) throws(StoreError) {
        try store.epochWatch?.check(directory, isRoot: node === nodes.root)
    }

    /// Returns a descriptor of a directory. Needs no keys during a lock, which may wipe them.
    private func directoryDescriptor(_ node: Node) throws(StoreError) -> Descriptor {
        if gate.state == .unlocked, let open = try? directory(node) { return open.descriptor }
        return try pinDirectory(node)
    }

    /// Returns the directory if it is open. Another machine may have replaced it.
    func knownDirectory(_ node: Node) -> OpenDirectory? {
        directories.find(node) ?? node.opening.withLock { $0.removedDirectory }
    }

    /// Returns an O_PATH descriptor of a directory. Finds it by backing names, so it needs no key.
    func pinDirectory(_ node: Node) throws(StoreError) -> Descriptor {
        try nodes.descriptor(
            ofDirectory: node,
            opened: { node in
                if node === nodes.root { return rootDirectory.descriptor }
                return knownDirectory(node)?.descriptor
            }, isSame: hasRecord)
    }

    /// Returns true if a directory's record has the same secret as the node's when it was open.
    private func hasRecord(of node: Node, _ descriptor: Descriptor) -> Bool {
        let found = DirectoryClass()
        guard let known = node.directoryClass,
            (try? OpenDirectory.open(descriptor, isRoot: false, in: store, class: found)) != nil
        else { return false }
        return found.hasSecret(of: known)
    }

    /// Opens a node's directory. All openings of a node share one class.
    private static func open(
        _ descriptor: Descriptor, of node: Node, isRoot: Bool, in store: Store
    ) throws(StoreError) -> OpenDirectory {
        guard let sharedClass = node.directoryClass else { throw .system(.notDirectory) }
        let directory = try OpenDirectory.open(descriptor, isRoot: isRoot, in: store, class: sharedClass)
        node.protectionClass = directory.protectionClass
        return directory
    }

    /// Calls `body` with a directory and the node's entry in it. Tries all known names of the node.
    func atName<Result>(
        of node: Node, _ body: (Descriptor, Component) throws(StoreError) -> Result
    ) throws(StoreError) -> Result {
        try nodes.atName(of: node, in: { (node) throws(StoreError) in try directoryDescriptor(node) }, body)
    }

    /// Does the same for a `body` that throws `ESTALE` if the entry is another object.
    func atCheckedName<Result>(
        of node: Node, _ body: (Descriptor, Component) throws(StoreError) -> Result
    ) throws(StoreError) -> Result {
        try nodes.atCheckedName(of: node, in: { (node) throws(StoreError) in try directoryDescriptor(node) }, body)
    }

    /// Returns the descriptor of an open node. Does not wait for writers, because the caller may hold the lock of the
    /// file's attributes, for which a writer may be waiting in a checkpoint.
    func openDescriptor(_ node: Node) -> Descriptor? {
        if node.isRegularFile { return node.openFile?.reader }
        if node === nodes.root { return rootDirectory.descriptor }
        // Do not use `directory`, because chmod(2) must work even if the record is damaged or the owner has no access.
        return node.isDirectory ? knownDirectory(node)?.descriptor : nil
    }

    /// Returns a descriptor of any node: its open file's, or an O_PATH one after checking the inode.
    func pin(_ node: Node) throws(StoreError) -> Descriptor {
        if let open = openDescriptor(node) { return open }
        return try openBacking(node, flags: linux_O_PATH)
    }

    /// Converts a backing stat for programs: the plaintext's size, and times and mode without the effect of sealing.
    func plaintextAttributes(_ status: stat, of node: Node) -> stat {
        var file = node.openFile
        // Open it if its length and times are unknown otherwise, so that a program's own open does not change them.
        if file == nil, node.isRegularFile, store(of: node).opensForAttributes { file = try? openFile(node) }
        try? file?.followed?.follow(status)
        var result = node.isRegularFile ? node.withoutSealing(status) : status
        // Do this last, because a program may write the file while a checkpoint puts earlier changes in place.
        if let file { result = file.parts.log.shownStatus(result) }
        // Round the log's time to the store's grain (2 s on FAT), so that programs see the time that stays.
        if let grain = store.traits.timeGrain { result.st_mtim.round(to: grain) }
        switch status.st_mode & S_IFMT {
        case S_IFREG:
            result.st_size = off_t(plaintextLength(of: node, file, status))
            // access(2) checks only the mode (fuse_permission in fs/fuse/dir.c).
            if node.isConflictCopy, attributeObserver.current != nil { result.st_mode &= ~0o222 }
        case S_IFLNK: result.st_size = off_t(LinkTarget.length(ofStoredLength: Int(status.st_size)))
        default: break
        }
        return result
    }

    /// Returns a file's plaintext length. An open file knows it, because only this daemon changes it. For any other
    /// file it follows from the backing size.
    private func plaintextLength(of node: Node, _ file: EncryptedFile?, _ status: stat) -> UInt64 {
        // Ignore an extension of the backing file since its open, because reads do not follow it either.
        if let file, !store.followsWriter || store(of: node).opensForAttributes { return file.length }
        return store.layout.plaintextLength(ofBackingSize: UInt64(max(0, status.st_size)))
    }
}

extension VaultFileSystem: FileSystem {
    package var ownsSource: Bool { !store.followsWriter }
    package var checksAccess: Bool { true }

    package func makeWorkspace() throws(StoreError) -> Workspace { try Workspace(layout: store.layout) }

    package func runInBackground() {
        let completing = store.completion.flatMap { _ in try? BackgroundThread { self.completeEverything() } }
        let watch = store.isReadOnly ? nil : try? BackgroundThread { self.store.watchWriterLock() }
        store.durability.run()
        completing?.join()
        watch?.join()
    }

    package func failed(_ error: StoreError) { store.durability.met(error) }

    package func statistics() -> Statistics {
        var statistics = Statistics(
            store.counters, cache: store.cache, nodes: nodes.count, isCompleting: store.completion?.isActive ?? false,
            log: store.isReadOnly ? nil : store.log.statistics)
        // A sync client may have removed some.
        let absent = conflictCopies.withLock { $0 }.filter { path in
            (try? store.root.locate(path)).flatMap { try? $0.status(of: $1) } == nil
        }
        statistics.conflictCopies = conflictCopies.withLock { known in
            known.subtract(absent)
            return known.count
        }
        return statistics
    }

    func countConflictCopy(_ entry: Component, in directory: Node) {
        guard let path = objectPath(of: directory, entry: entry)?.stored else { return }
        conflictCopies.withLock { if $0.count < Self.mostConflictCopies { $0.insert(path) } }
    }

    package func setAttributeObserver(_ observer: @escaping @Sendable (UInt64) -> Void) {
        attributeObserver.set(observer)
    }

    package func setDamageObserver(_ observer: @escaping @Sendable (Damage) -> Void) {
        damageObserver.set(observer)
    }

    /// Reports chunks of lost acknowledged content as damage of their file. Never waits for a file being opened.
    package func report(_ loss: LostChunks) {
        let node = nodes.all.first { $0.opening.withLockIfAvailable { $0.file === loss.file } ?? false }
        let (first, last) = (loss.chunks.lowerBound, loss.chunks.upperBound - 1)
        let name = first == last ? "chunk \(first) is" : "chunks \(first) to \(last) are"
        damageObserver.notify(
            Damage("\(name) lost: written, but not readable in vaultfs.log", at: node.flatMap { objectPath(of: $0) }))
    }

    /// The store's faults, one line of text each, with names of files unless the store does not answer.
    package var problems: [String] {
        let problems = store.problems
        if problems.isEmpty { return [] }
        // Finding names may need the store.
        return withinTime(milliseconds: 500) { [self] in store.problems(naming: name) } ?? problems
    }

    private func name(of part: StoreFaults.Part) -> String? {
        let node = nodes.all.first { node in
            guard let file = node.opening.withLockIfAvailable({ $0.file }) ?? nil else { return false }
            switch part {
            case .placing(let id), .length(let id): return file.fileID == id
            case .syncing(let token), .removed(let token): return file.token == token
            case .store, .log, .checkpoint, .names, .foundLog, .oldState, .writerLock, .end: return false
            }
        }
        return node.flatMap { objectPath(of: $0) }?.shown
    }

    /// Omits plaintext names while the vault is locked.
    package func path(of id: NodeID) -> ObjectPath? { (try? nodes.node(id)).flatMap { objectPath(of: $0) } }

    /// - Parameter entry: an entry of the directory `node` whose name does not authenticate.
    func objectPath(of node: Node, entry: Component? = nil) -> ObjectPath? {
        let names = nodes.path(of: node)
        guard node === nodes.root || names.first?.parent === nodes.root else { return nil }
        let stored = (names.map(\.entry) + (entry.map { [$0] } ?? [])).joined(separator: [UInt8(ascii: "/")])
        let isKnown = entry == nil && gate.state == .unlocked
        return ObjectPath(stored: Array(stored), plaintext: isKnown ? plaintextPath(names) : nil)
    }
}

/// The space of the store. Deleted files and the log keep theirs until a checkpoint.
extension VaultFileSystem {
    package func space() throws(StoreError) -> statvfs {
        var result = statvfs()
        try retrying { fstatvfs(store.root.fd, &result) }
        let entryLength = store.traits.longestEntry ?? EntryName.maximumLength
        result.f_namemax = UInt(EntryName.longestName(entryLength: entryLength))
        return result
    }

    /// Runs a change that may need space. If the store is full, makes a checkpoint to free some, and runs the change
    /// once more, because this or another thread's checkpoint may have freed enough. So a failed change must not leave
    /// anything in the way of its repetition. The caller holds no lock.
    @inline(__always)
    func withSpace<Result>(_ change: () throws(StoreError) -> Result) throws(StoreError) -> Result {
        do throws(StoreError) { return try change() } catch {
            guard error.isNoSpace, (try? store.log.checkpoint(.fullDisk)) != nil else { throw error }
        }
        return try change()
    }
}
