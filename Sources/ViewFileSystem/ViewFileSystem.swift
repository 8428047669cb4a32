package import FileSystem
package import Glibc
package import LinuxSystem
package import Locking
package import Logging
internal import Synchronization
internal import SystemPackage
internal import VaultCrypto
package import ViewFormats

/// A read-only tree of plaintext over ciphertext of other programs. Any thread.
///
/// Other programs can change the source. The kernel caches its attributes for a second, and each open checks it again.
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
    /// Opens that wait for key files and derivations, and opens that wait for the key command. They are separate, so that
    /// the first never wait for the second.
    let quickOpens: DeferredOpens
    let commandOpens: DeferredOpens
    let prefetches = PrefetchQueue()
    let lockController = Mutex<LockController?>(nil)
    let attributeObserver = Mutex<(@Sendable (UInt64) -> Void)?>(nil)
    private let nextToken = Atomic<UInt64>(1)
    let isMounted: Bool

    /// - Parameters:
    ///   - isMounted: false if this process itself reads the files, as an export does. Modes are then the source's, and
    ///     errors carry their texts instead of logging them.
    ///   - secrets: from which the source's key store derives keys.
    ///   - cacheSize: bytes of the block cache.
    package init(
        source: ViewSource, secrets: ViewSecrets, gate: LockGate, cacheSize: Int, logger: Logger, isMounted: Bool = true
    ) throws(StoreError) {
        self.source = source
        self.secrets = secrets
        self.gate = gate
        self.isMounted = isMounted
        cache = try BlockCache(capacity: cacheSize, blockSize: ViewWorkspace.pageSize)
        fileProblems = ViewProblems(logger: logger)
        quickOpens = DeferredOpens(gate: gate, keys: source.keys, mostThreads: 4)
        commandOpens = DeferredOpens(gate: gate, keys: source.keys, mostThreads: 32)
        nodes = NodeTable(root: ViewNode(key: FileIdentity(try source.root.status()), kind: S_IFDIR))
        try source.scan()
    }

    // MARK: The source

    /// A descriptor of a directory, for names, not for listing.
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

    /// Opens the source of a regular file.
    /// - Throws: `ESTALE` if the name leads to another file. The kernel then looks it up again.
    func openSource(_ node: ViewNode) throws(StoreError) -> (source: SourceFile, status: stat) {
        guard node.isRegularFile else { throw .system(node.isDirectory ? .isDirectory : .invalidArgument) }
        let descriptor = try atName(of: node) { (directory, entry) throws(StoreError) in
            try Descriptor(at: directory.fd, entry, flags: O_RDONLY | O_NONBLOCK)
        }
        let status = try descriptor.status()
        guard FileIdentity(status) == node.key else { throw .system(.staleNFSFileHandle) }
        return (SourceFile(descriptor, status), status)
    }

    /// The path from the source's root. Empty for a node without a name.
    func path(of node: ViewNode) -> [UInt8] {
        Array(nodes.path(of: node).map(\.entry).joined(separator: [UInt8(ascii: "/")]))
    }

    // MARK: Attributes

    package func attributes(_ id: NodeID) throws(StoreError) -> stat {
        let node = try nodes.node(id)
        // The root always replies, because programs check mountpoints.
        if node === nodes.root { return readOnly(try source.root.status()) }
        try admit()
        if node.isDirectory { return readOnly(try directory(node).status()) }
        if let file = node.openFile {
            var status = readOnly(try file.source.descriptor.status())
            guard status.st_nlink == 0 else { return plaintextAttributes(status, of: node) }
            // Removed: there is no name by which to open it again.
            status.st_size = off_t(file.length)
            return status
        }
        let status = try atName(of: node) { (directory, entry) throws(StoreError) in try directory.status(of: entry) }
        return plaintextAttributes(status, of: node)
    }

    /// The attributes of the plaintext. If a file's keys are not in memory, the size is that of the ciphertext until an
    /// open, because `ls -l` must not wait for key commands.
    func plaintextAttributes(_ status: stat, of node: ViewNode) -> stat {
        var result = readOnly(status)
        if node.isRegularFile {
            if let length = length(of: node, status) { result.st_size = off_t(length) }
            node.reportedSize.withLock { $0 = Int64(result.st_size) }
        }
        return result
    }

    private func readOnly(_ status: stat) -> stat {
        var status = status
        if isMounted { status.st_mode &= ~0o222 }
        return status
    }

    private func length(of node: ViewNode, _ status: stat) -> UInt64? {
        let stamp = FileStamp(status)
        // In hls, the playlists of a file that is not open may have changed.
        if let known = node.known, known.stamp == stamp, source.format.layout != .hls || node.openFile != nil {
            return known.length
        }
        if let length = source.knownLength(status, path: { path(of: node) }) { return length }
        guard let (file, status) = try? openSource(node), FileStamp(status) == stamp else { return nil }
        guard let plan = try? source.plan(for: path(of: node), file, status),
            let keys = availableKeys(plan)
        else { return nil }
        let token = tokenOfContent(of: node, stamp, plan)
        guard let content = try? plan.open(file, keys: keys, token: token, cache: cache, counters: counters) else {
            return nil
        }
        node.remember(.init(stamp: stamp, plan: plan, token: token, length: content.length))
        return content.length
    }

    /// The keys of a file. Nil if one is not in memory.
    func availableKeys(_ plan: FilePlan) -> [KeyMaterial]? {
        var keys: [KeyMaterial] = []
        for name in plan.keyNames {
            guard let key = source.keys.find(name) else { return nil }
            keys.append(key)
        }
        return keys
    }

    /// The token of a file's content in the block cache. New if the file or its plan has changed.
    func tokenOfContent(of node: ViewNode, _ stamp: FileStamp, _ plan: FilePlan) -> UInt64 {
        if let known = node.known, known.stamp == stamp, known.plan.isSame(as: plan) { return known.token }
        return nextToken.add(1, ordering: .relaxed).oldValue
    }

    /// statvfs(3) of the source.
    package func space() throws(StoreError) -> statvfs {
        var result = statvfs()
        try retrying { fstatvfs(source.root.fd, &result) }
        return result
    }

    /// Refuses every operation while the view is locked.
    @inline(__always)
    func admit() throws(StoreError) {
        if gate.isUnlocked() { return }
        counters.refusedRequests.count()
        lockController.withLock { $0 }?.refused()
        throw .locked
    }
}
