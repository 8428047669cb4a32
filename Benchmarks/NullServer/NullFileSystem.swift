internal import CLinux
internal import FileSystem
internal import Glibc
internal import LinuxSystem
internal import Locking
internal import Synchronization
internal import SystemPackage
internal import VaultCrypto

/// A file system that does nothing: names and attributes in memory, no contents. What it takes to serve it is what FUSE
/// and our worker loop take. Any thread; one mutex for the tree, none for reads and writes.
final class NullFileSystem: Sendable {
    let gate = LockGate()
    let counters = Counters()
    /// The protocol's; nothing is in it.
    let cache: BlockCache
    let root = NullNode(mode: S_IFDIR | 0o755, uid: getuid(), gid: getgid())
    /// Held by whoever looks at nodes.
    let tree = Mutex(())

    init() throws(StoreError) {
        cache = try BlockCache(capacity: 4096, blockSize: 4096)
    }

    /// The node with this number. The kernel names only nodes that it holds.
    func node(_ id: NodeID) throws(StoreError) -> NullNode {
        if id == .root { return root }
        guard let pointer = UnsafeRawPointer(bitPattern: UInt(id.rawValue)) else { throw .system(.staleNFSFileHandle) }
        return Unmanaged<NullNode>.fromOpaque(pointer).takeUnretainedValue()
    }

    /// Puts a new node into a directory. Throws `EEXIST`.
    func add(_ node: NullNode, as name: [UInt8], in parent: NodeID) throws(StoreError) -> NodeEntry {
        let directory = try self.node(parent)
        return try tree.withLock { (_) throws(StoreError) in
            guard directory.children[name] == nil else { throw .system(.fileExists) }
            directory.children[name] = node
            if node.isDirectory { directory.attributes.st_nlink += 1 }
            return node.entry()
        }
    }

    /// Takes a name out of a directory, the mutex being held.
    func remove(_ name: [UInt8], from directory: NullNode, isDirectory: Bool) throws(StoreError) {
        guard let node = directory.children[name] else { throw .system(.noSuchFileOrDirectory) }
        guard node.isDirectory == isDirectory else { throw .system(isDirectory ? .notDirectory : .isDirectory) }
        guard node.children.isEmpty else { throw .system(.directoryNotEmpty) }
        directory.children[name] = nil
        node.attributes.st_nlink = isDirectory ? 0 : node.attributes.st_nlink - 1
        if isDirectory { directory.attributes.st_nlink -= 1 }
    }
}

extension NullFileSystem: FileSystem {
    /// The same as a vault's.
    var ownsSource: Bool { true }
    /// The same as a vault's. Everything is allowed.
    var checksAccess: Bool { true }
    func checkAccess(_ id: NodeID, _ mask: Int32, isOpening: Bool) {}

    func makeWorkspace() -> NullWorkspace { NullWorkspace() }
    func shutDown() {}
    func synchronizeEverything() {}
    func openInodes() -> [UInt64] { [] }

    func statistics() -> Statistics { Statistics(counters, cache: cache, nodes: 0) }

    // MARK: Files

    func beginOpening(
        _ id: NodeID, flags: Int32, for caller: Caller, workspace: NullWorkspace
    ) throws(StoreError) -> Opening<NullNode> {
        let node = try node(id)
        if flags & O_TRUNC != 0 { node.length.store(0, ordering: .relaxed) }
        return .opened(node)
    }

    func create(
        _ name: [UInt8], in parent: NodeID, mode: mode_t, flags: Int32, for caller: Caller
    ) throws(StoreError) -> (entry: NodeEntry, handle: NullNode) {
        let node = NullNode(mode: S_IFREG | mode & 0o7777, uid: caller.uid, gid: caller.gid)
        return (try add(node, as: name, in: parent), node)
    }

    func release(_ handle: NullNode) {}

    func pageCaching(of handle: NullNode) -> PageCaching { .keep }

    /// The buffer is zeros already.
    func read(
        _ handle: NullNode, at plaintextOffset: UInt64, into buffer: UnsafeMutableRawBufferPointer,
        workspace: NullWorkspace
    ) -> Int {
        let length = handle.length.load(ordering: .relaxed)
        return plaintextOffset < length ? Int(min(UInt64(buffer.count), length - plaintextOffset)) : 0
    }

    func write(
        _ handle: NullNode, _ data: UnsafeRawBufferPointer, at plaintextOffset: UInt64, isWriteBack: Bool,
        workspace: NullWorkspace
    ) -> Int {
        handle.extend(to: plaintextOffset + UInt64(data.count))
        return data.count
    }

    func synchronize(_ handle: NullNode, dataOnly: Bool) {}

    func allocate(
        _ handle: NullNode, mode: Int32, range: Range<UInt64>, workspace: NullWorkspace
    ) throws(StoreError) {
        guard mode == 0 else { throw .system(.notSupported) }
        handle.extend(to: range.upperBound)
    }

    func seek(_ handle: NullNode, from plaintextOffset: UInt64, toHole: Bool) throws(StoreError) -> UInt64 {
        let length = handle.length.load(ordering: .relaxed)
        guard plaintextOffset < length else { throw .system(.noSuchAddressOrDevice) }
        return toHole ? length : plaintextOffset
    }

    /// Programs then copy by themselves.
    func copy(
        from source: NullNode, at sourceOffset: UInt64, to destination: NullNode, at destinationOffset: UInt64,
        count: Int, workspace: NullWorkspace
    ) throws(StoreError) -> Int {
        throw .system(.notSupported)
    }

    // MARK: Directories

    func openDirectory(_ id: NodeID) throws(StoreError) -> NullListing {
        let node = try node(id)
        return tree.withLock { _ in NullListing(of: node) }
    }

    func release(_ handle: NullListing) {}

    func synchronize(_ handle: NullListing, dataOnly: Bool) {}

    func list(_ handle: NullListing, from offset: Int64, withAttributes: Bool, _ accept: (ListedEntry) -> Bool) {
        tree.withLock { _ in
            for position in min(Int(offset), handle.entries.count)..<handle.entries.count {
                let (name, node) = handle.entries[position]
                var listed = ListedEntry(name: name, attributes: node.attributes, nextOffset: Int64(position + 1))
                if withAttributes && position > 1 {
                    let entry = node.entry()
                    (listed.id, listed.attributes) = (entry.id, entry.attributes)
                }
                if accept(listed) { continue }
                if listed.id != nil { node.forget(1) }
                return
            }
        }
    }

    // MARK: Names

    func lookUp(_ name: [UInt8], in parent: NodeID) throws(StoreError) -> NodeEntry {
        let directory = try node(parent)
        return try tree.withLock { (_) throws(StoreError) in
            guard let node = directory.children[name] else { throw .system(.noSuchFileOrDirectory) }
            return node.entry()
        }
    }

    func forget(_ id: NodeID, count: UInt64) {
        guard id != .root, let node = try? node(id) else { return }
        tree.withLock { _ in node.forget(count) }
    }

    func linkTarget(_ id: NodeID) throws(StoreError) -> [UInt8] {
        let node = try node(id)
        return tree.withLock { _ in node.target }
    }

    func make(
        _ name: [UInt8], in parent: NodeID, _ object: NewObject, for caller: Caller
    ) throws(StoreError) -> NodeEntry {
        func new(_ mode: mode_t) -> NullNode { NullNode(mode: mode, uid: caller.uid, gid: caller.gid) }
        switch object {
        case .directory(let mode): return try add(new(S_IFDIR | mode & 0o7777), as: name, in: parent)
        case .node(let mode, _): return try add(new(mode), as: name, in: parent)
        case .link(let target):
            let node = new(S_IFLNK | 0o777)
            node.target = target
            node.extend(to: UInt64(target.count))
            return try add(node, as: name, in: parent)
        case .hardLink(let id):
            let node = try node(id)
            tree.withLock { _ in node.attributes.st_nlink += 1 }
            return try add(node, as: name, in: parent)
        }
    }

    func remove(_ name: [UInt8], in parent: NodeID, isDirectory: Bool) throws(StoreError) {
        let directory = try node(parent)
        try tree.withLock { (_) throws(StoreError) in try remove(name, from: directory, isDirectory: isDirectory) }
    }

    func rename(
        _ name: [UInt8], in parent: NodeID, to newName: [UInt8], in newParent: NodeID, flags: UInt32,
        for caller: Caller
    ) throws(StoreError) {
        let (source, destination) = (try node(parent), try node(newParent))
        guard flags & ~linux_RENAME_NOREPLACE == 0 else { throw .system(.invalidArgument) }
        try tree.withLock { (_) throws(StoreError) in
            guard let node = source.children[name] else { throw .system(.noSuchFileOrDirectory) }
            if let replaced = destination.children[newName], replaced !== node {
                if flags != 0 { throw .system(.fileExists) }
                try remove(newName, from: destination, isDirectory: node.isDirectory)
            }
            source.children[name] = nil
            destination.children[newName] = node
            guard node.isDirectory else { return }
            source.attributes.st_nlink -= 1
            destination.attributes.st_nlink += 1
        }
    }

    // MARK: Attributes

    func attributes(_ id: NodeID) throws(StoreError) -> stat {
        let node = try node(id)
        return tree.withLock { _ in node.status }
    }

    func change(
        _ id: NodeID, _ changes: AttributeChanges, handle: NullNode?, workspace: NullWorkspace
    ) throws(StoreError) -> stat {
        let node = try node(id)
        if let length = changes.length { node.length.store(length, ordering: .relaxed) }
        return tree.withLock { _ in
            if let mode = changes.mode {
                node.attributes.st_mode = node.attributes.st_mode & S_IFMT | mode & 0o7777
            }
            if let uid = changes.uid { node.attributes.st_uid = uid }
            if let gid = changes.gid { node.attributes.st_gid = gid }
            if let time = changes.accessTime { node.attributes.st_atim = Self.time(time) }
            if let time = changes.modificationTime { node.attributes.st_mtim = Self.time(time) }
            return node.status
        }
    }

    /// Nothing is protected here.
    func dropSetID(_ id: NodeID, for caller: () -> Caller) {}

    private static func time(_ given: timespec) -> timespec {
        guard given.tv_nsec == linux_UTIME_NOW else { return given }
        var now = timespec()
        clock_gettime(CLOCK_REALTIME, &now)
        return now
    }

    func space() -> statvfs {
        var space = statvfs()
        space.f_bsize = 4096
        space.f_frsize = 4096
        space.f_blocks = 1 << 30
        space.f_bfree = space.f_blocks
        space.f_bavail = space.f_blocks
        space.f_namemax = 255
        return space
    }

    // There are no extended attributes. What a vault says of one it has not got, so that the kernel goes on asking alike.

    func attribute(_ id: NodeID, _ name: [UInt8]) throws(StoreError) -> [UInt8] {
        throw .system(.noData)
    }

    func attributeNames(_ id: NodeID) -> [[UInt8]] { [] }

    func setAttribute(_ id: NodeID, _ name: [UInt8], value: [UInt8]?, flags: Int32) throws(StoreError) {
        throw .system(value == nil ? .noData : .notSupported)
    }
}

extension NullFileSystem: LockableFileSystem {
    // It is never locked.
    var openHandles: Int { 0 }
    var writingHandles: Int { 0 }
    var presentKeys: [String] { [] }
    var needsSecret: Bool { false }

    func setLockController(_ controller: LockController) {}
    func inodesToDrop() -> [UInt64] { [] }
    func knownNames() -> [KnownName] { [] }
    func sealEverything() {}
    func forgetKeys(everything: Bool) -> [String] { [] }
    func restoreKeys(_ secret: SecretBytes?) {}
}
