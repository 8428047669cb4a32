internal import CLinux
package import FileSystem
package import Glibc
package import LinuxSystem
package import Locking
package import Logging
internal import Synchronization
internal import SystemPackage
internal import VaultCrypto
package import ViewFormats

/// Ciphertext of other formats as a read-only tree of plaintext. Any thread.
///
/// The source is somebody else's: what is told of it is told again after a second, and each open looks at it anew.
package final class ViewFileSystem: Sendable {
    let source: ViewSource
    package let gate: LockGate
    package let counters = Counters()
    package let cache: BlockCache
    let fileProblems: ViewProblems
    package let secrets: ViewSecrets
    let nodes: NodeTable<ViewNode>
    let directories = DirectoryCache<ViewNode, Descriptor>()
    let handles = Atomic<Int>(0)
    /// Opens that wait for files and derivations, and those that wait for somebody else's command: none of the first for
    /// any of the others.
    let quickOpens: DeferredOpens
    let commandOpens: DeferredOpens
    let prewarming = Prewarming()
    /// Directories in which a lookup was refused since the last lock.
    let refusedLookups = ObjectSet<ViewNode>()
    let lockObserver = Mutex<(any LockObserver)?>(nil)
    let attributeObserver = Mutex<(@Sendable (UInt64) -> Void)?>(nil)
    private let nextToken = Atomic<UInt64>(1)

    /// - Parameters:
    ///   - secrets: what the source's key store derives keys from.
    ///   - cacheSize: bytes for the block cache.
    package init(
        source: ViewSource, secrets: ViewSecrets, gate: LockGate, cacheSize: Int, logger: Logger
    ) throws(StoreError) {
        self.source = source
        self.secrets = secrets
        self.gate = gate
        cache = try BlockCache(capacity: cacheSize, blockSize: ViewWorkspace.pageSize)
        fileProblems = ViewProblems(logger: logger)
        quickOpens = DeferredOpens(gate: gate, keys: source.keys, mostThreads: 4)
        commandOpens = DeferredOpens(gate: gate, keys: source.keys, mostThreads: 32)
        nodes = NodeTable(root: ViewNode(key: FileIdentity(try source.root.status()), kind: S_IFDIR))
        try source.scan()
    }

    /// A number for a file's content that no other has had.
    private func makeToken() -> UInt64 {
        nextToken.add(1, ordering: .relaxed).oldValue
    }

    // MARK: What is on disk

    /// A descriptor of a directory: for names, not for listing.
    func directory(_ node: ViewNode) throws(StoreError) -> Descriptor {
        guard node.isDirectory else { throw .system(.notDirectory) }
        if node === nodes.root { return source.root }
        if let known = directories.find(node) { return known }
        let opened = try nodes.descriptor(ofDirectory: node) { node in
            node === nodes.root ? source.root : directories.find(node)
        }
        directories.insert(opened, for: node)
        return opened
    }

    func atName<Result>(
        of node: ViewNode, _ body: (Descriptor, [UInt8]) throws(StoreError) -> Result
    ) throws(StoreError) -> Result {
        try nodes.atName(of: node, in: { (node) throws(StoreError) in try directory(node) }, body)
    }

    /// The source of a regular file, opened.
    /// - Throws: `ESTALE` where another is in its place: the kernel then looks again.
    func openSource(_ node: ViewNode) throws(StoreError) -> (source: SourceFile, status: stat) {
        guard node.isRegularFile else { throw .system(node.isDirectory ? .isDirectory : .invalidArgument) }
        let descriptor = try atName(of: node) { (directory, entry) throws(StoreError) in
            try Descriptor(at: directory.fd, entry, flags: O_RDONLY | O_NONBLOCK)
        }
        let status = try descriptor.status()
        guard FileIdentity(status) == node.key else { throw .system(.staleNFSFileHandle) }
        return (SourceFile(descriptor, size: UInt64(max(0, status.st_size))), status)
    }

    /// The path from the source's root; of a node without a name, empty.
    func path(of node: ViewNode) -> [UInt8] {
        var path: [UInt8] = []
        var current = node
        while current !== nodes.root, let name = nodes.name(of: current) {
            path = path.isEmpty ? name.entry : name.entry + [UInt8(ascii: "/")] + path
            current = name.parent
        }
        return path
    }

    // MARK: Attributes

    package func attributes(_ id: NodeID) throws(StoreError) -> stat {
        let node = try nodes.node(id)
        // The root always answers, so that whatever looks at mountpoints goes on.
        if node === nodes.root { return readOnly(try source.root.status()) }
        try admit()
        if node.isDirectory { return readOnly(try directory(node).status()) }
        if let file = node.openFile {
            var status = readOnly(try file.source.descriptor.status())
            guard status.st_nlink == 0 else { return plaintextAttributes(status, of: node) }
            // It has no name any more by which it could be looked at anew.
            status.st_size = off_t(file.length)
            return status
        }
        let status = try atName(of: node) { (directory, entry) throws(StoreError) in try directory.status(of: entry) }
        return plaintextAttributes(status, of: node)
    }

    /// As programs are to see them. Of a file whose keys are not in memory the size is the ciphertext's until it is opened:
    /// `ls -l` must not wait for key commands.
    func plaintextAttributes(_ status: stat, of node: ViewNode) -> stat {
        var result = readOnly(status)
        if node.isRegularFile {
            if let length = length(of: node, status) { result.st_size = off_t(length) }
            node.toldSize.withLock { $0 = Int64(result.st_size) }
        }
        return result
    }

    private func readOnly(_ status: stat) -> stat {
        var status = status
        status.st_mode &= ~0o222
        return status
    }

    private func length(of node: ViewNode, _ status: stat) -> UInt64? {
        let stamp = FileStamp(status)
        // What playlists say of a file that is not open may have changed.
        if let known = node.known, known.stamp == stamp, source.format.layout != .hls || node.openFile != nil {
            return known.length
        }
        if let length = source.knownLength(status, path: { path(of: node) }) { return length }
        guard let (file, status) = try? openSource(node), FileStamp(status) == stamp else { return nil }
        guard let plan = try? source.plan(for: path(of: node), file, status),
            let keys = availableKeys(plan), let content = try? plan.open(file, keys: keys)
        else { return nil }
        remember(content.length, stamp, plan, of: node)
        return content.length
    }

    /// The keys of a file, if all of them are in memory.
    func availableKeys(_ plan: FilePlan) -> [KeyMaterial]? {
        var keys: [KeyMaterial] = []
        for name in plan.keyNames {
            guard let key = source.keys.find(name) else { return nil }
            keys.append(key)
        }
        return keys
    }

    private func remember(_ length: UInt64, _ stamp: FileStamp, _ plan: FilePlan, of node: ViewNode) {
        let token = tokenOfContent(of: node, stamp, plan)
        node.remember(.init(stamp: stamp, plan: plan, token: token, length: length))
    }

    /// What is cached of a file is of use for as long as it is the same, read in the same way.
    func tokenOfContent(of node: ViewNode, _ stamp: FileStamp, _ plan: FilePlan) -> UInt64 {
        if let known = node.known, known.stamp == stamp, known.plan.isSame(as: plan) { return known.token }
        return makeToken()
    }

    /// statvfs(3) of the source.
    package func space() throws(StoreError) -> statvfs {
        var result = statvfs()
        try retrying { fstatvfs(source.root.fd, &result) }
        return result
    }

    // MARK: The lock

    /// Everything in a view is refused while it is locked.
    @inline(__always)
    func admit() throws(StoreError) {
        if gate.isUnlocked() { return }
        counters.refusedRequests.count()
        lockObserver.withLock { $0 }?.refused()
        throw .locked
    }
}
