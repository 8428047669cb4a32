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

extension NullFileSystem: LockableFileSystem {
    // It is never locked.
    var openHandles: Int { 0 }
    var writingHandles: Int { 0 }
    var presentKeys: [String] { [] }
    var needsSecret: Bool { false }

    func setLockController(_ controller: LockController) {}
    func inodesToDrop() -> [UInt64] { [] }
    func knownNames() -> [KnownName] { [] }
    func closeDirectories() {}
    func sealEverything() {}
    func forgetKeys(everything: Bool) -> [String] { [] }
    func restoreKeys(_ secret: SecretBytes?) {}
    func detachedDirectories(all: Bool) -> [[UInt8]] { [] }
    func attachedDirectories() {}
}
