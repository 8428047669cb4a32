package import FileSystem
package import Glibc
package import LinuxSystem
package import Locking
package import Logging
internal import Synchronization
internal import SystemPackage
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
    let prefetches = Monitor(PrefetchQueue())
    let lockController = Mutex<LockController?>(nil)
    let attributeObserver = Observer<UInt64>()
    let nextToken = Atomic<UInt64>(1)
    let isMounted: Bool

    /// - Parameters:
    ///   - isMounted: false if this process itself reads the files, as an export does. Modes are then the source's, and
    ///     errors carry their texts instead of logging them.
    ///   - cacheSize: bytes of the block cache.
    /// - Throws: `.system` with errno of the source.
    package init(
        source: ViewSource, secrets: ViewSecrets, gate: LockGate, cacheSize: Int, logger: Logger, isMounted: Bool = true
    ) throws(StoreError) {
        self.source = source
        self.secrets = secrets
        self.gate = gate
        self.isMounted = isMounted
        cache = try BlockCache(capacity: cacheSize, blockSize: ViewWorkspace.pageSize)
        fileProblems = ViewProblems(logger: logger)
        nodes = NodeTable(root: ViewNode(key: FileIdentity(try source.root.status()), kind: S_IFDIR))
        try source.scan()
        source.keys.loadGiven()
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
        guard let (file, status) = try? openSource(node), FileStamp(status) == stamp,
            let plan = try? source.plan(for: path(of: node), file, status), let keys = availableKeys(plan)
        else { return nil }
        let token = tokenOfContent(of: node, stamp, plan)
        let content = try? plan.open(
            file, keys: keys, from: source.keys, waits: !isMounted, token: token, cache: cache, counters: counters)
        guard let content else { return nil }
        node.remember(.init(stamp: stamp, plan: plan, token: token, length: content.length))
        return content.length
    }

    package func space() throws(StoreError) -> statvfs {
        var result = statvfs()
        try retrying { fstatvfs(source.root.fd, &result) }
        return result
    }

    // MARK: Names

    package func lookUp(_ name: [UInt8], in parent: NodeID) throws(StoreError) -> NodeEntry {
        let parentNode = try nodes.node(parent)
        do throws(StoreError) { try admit() } catch {
            nodes.addRefusal(in: parentNode)
            throw error
        }
        let directory = try directory(parentNode)
        let (entry, status) = try find(name, in: directory, isRoot: parentNode === nodes.root)
        return self.entry(status, entry, parentNode)
    }

    /// Finds the source's entry of a name in the view: the name itself, or with the suffix that the view leaves out.
    private func find(
        _ name: [UInt8], in directory: Descriptor, isRoot: Bool
    ) throws(StoreError) -> (entry: [UInt8], status: stat) {
        do throws(StoreError) {
            guard source.shows(name, inRoot: isRoot) else { throw .system(.noSuchFileOrDirectory) }
            return (name, try directory.status(of: name))
        } catch .system(.noSuchFileOrDirectory) {
            let entry = name + source.strippedSuffix
            guard entry != name, source.shows(entry, inRoot: isRoot) else { throw .system(.noSuchFileOrDirectory) }
            let status = try directory.status(of: entry)
            guard status.st_mode & S_IFMT != S_IFDIR else { throw .system(.noSuchFileOrDirectory) }
            return (entry, status)
        }
    }

    /// The name that a listing shows. If the source has both names, each entry keeps its own.
    private func shownName(of listed: ListedEntry, in directory: Descriptor) -> [UInt8] {
        let suffix = source.strippedSuffix
        guard !suffix.isEmpty, listed.name.count > suffix.count, listed.name.suffix(suffix.count).elementsEqual(suffix),
            listed.attributes.st_mode & S_IFMT != S_IFDIR
        else { return listed.name }
        let stripped = Array(listed.name.dropLast(suffix.count))
        return (try? directory.status(of: stripped)) == nil ? stripped : listed.name
    }

    private func entry(_ status: stat, _ name: [UInt8], _ parent: ViewNode) -> NodeEntry {
        let node = nodes.intern(status, parent: parent, entry: name)
        source.wasLookedUp({ path(of: node) }, name: name)
        return NodeEntry(id: nodes.id(of: node), attributes: plaintextAttributes(status, of: node))
    }

    package func forget(_ id: NodeID, count: UInt64) { nodes.forget(id, count: Int(clamping: count)) }

    /// readlink(2), unchanged. The kernel resolves the target in the mount.
    package func linkTarget(_ id: NodeID) throws(StoreError) -> [UInt8] {
        let node = try nodes.node(id)
        try admit()
        return try atName(of: node) { (directory, entry) throws(StoreError) -> [UInt8] in
            try directory.linkTarget(of: entry)
        }
    }

    // MARK: Directories

    package func openDirectory(_ id: NodeID) throws(StoreError) -> ViewDirectoryHandle {
        let node = try nodes.node(id)
        try admit()
        return ViewDirectoryHandle(node: node, descriptor: try directory(node).openedForReading())
    }

    package func release(_ handle: ViewDirectoryHandle) {}

    package func list(
        _ handle: ViewDirectoryHandle, from offset: Int64, withAttributes: Bool, _ accept: (ListedEntry) -> Bool
    ) throws(StoreError) {
        try admit()
        let isRoot = handle.node === nodes.root
        let isAtEnd = try list(handle.reader, from: offset, accept) { directory, listed in
            guard source.shows(listed.name, inRoot: isRoot) else { return false }
            let name = shownName(of: listed, in: directory)
            defer { listed.name = name }
            if !withAttributes { return true }
            // Removed since getdents(2).
            guard let status = try? directory.status(of: listed.name) else { return false }
            let entry = entry(status, listed.name, handle.node)
            (listed.id, listed.attributes) = (entry.id, entry.attributes)
            return true
        }
        if isAtEnd { wasListed(handle.node) }
    }
}

/// The files of a view that cannot be read, for `status` and the log. One line for each file, the newest last. Any thread.
final class ViewProblems: Sendable {
    private static let maximumCount = 100

    private let logger: Logger
    private let lines = Mutex<[(path: [UInt8], text: String)]>([])

    init(logger: Logger) { self.logger = logger }

    /// Adds and logs a problem, unless it is the last one of the file.
    func add(_ text: String, of path: [UInt8]) {
        let isNew = lines.withLock { lines in
            if let index = lines.firstIndex(where: { $0.path == path }) {
                if lines[index].text == text { return false }
                lines.remove(at: index)
            }
            lines.append((path, text))
            if lines.count > Self.maximumCount { lines.removeFirst() }
            return true
        }
        if isNew { logger.error("\(Self.line(path, text))") }
    }

    /// Removes the problem of a file that has been opened.
    func clear(_ path: [UInt8]) { lines.withLock { $0.removeAll { $0.path == path } } }

    var all: [String] { lines.withLock { $0.map { Self.line($0.path, $0.text) } } }

    private static func line(_ path: [UInt8], _ text: String) -> String { "\(shown(path)): \(text)" }
}
