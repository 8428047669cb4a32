internal import CLinux
package import FileSystem
package import Glibc
package import LinuxSystem
package import Locking
package import Logging
internal import Synchronization
internal import SystemPackage
package import VaultCrypto
package import ViewFormats

/// A read-only tree of plaintext over ciphertext of other programs. Any thread.
///
/// Other programs can change the source. The kernel caches attributes for a second, and each open checks them again.
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
        // Return large blocks at once, because MP4 boxes and lines of playlists can take many MiB for a moment.
        if isMounted { linux_return_large_blocks() }
        // Read the playlists even if the view begins locked, because they are not secret.
        try source.scan()
        source.interruption.setLock { !gate.isUnlocked() }
        source.keys.loadGiven()
    }

    // MARK: Attributes

    package func attributes(_ id: NodeID) throws(StoreError) -> stat {
        let node = try nodes.node(id)
        // Always reply for the root, because programs check mountpoints.
        if node === nodes.root { return readOnly(try source.root.status()) }
        try admit()
        if node.isDirectory { return readOnly(try directory(node).status()) }
        if let file = node.openFile {
            var status = readOnly(try file.source.descriptor.status())
            guard status.st_nlink == 0 else { return plaintextAttributes(status, of: node) }
            // The file was removed, so it has no name by which to open it again.
            status.st_size = off_t(file.length)
            return status
        }
        let status = try atName(of: node) { (directory, entry) throws(StoreError) in try directory.status(of: entry) }
        return plaintextAttributes(status, of: node)
    }

    /// Returns the attributes of the plaintext. Without a file's keys in memory, the size is that of the ciphertext
    /// until an open, because `ls -l` must not wait for key commands.
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
        guard isMounted else { return status }
        // The group's bits are the mask of an ACL, for which the kernel asks only if they are not zero
        // (acl_permission_check in fs/namei.c). So keep the last of them, or the others' bits would count for every
        // user.
        status.st_mode &= status.st_mode & 0o070 == 0o020 ? ~0o202 : ~0o222
        return status
    }

    private func length(of node: ViewNode, _ status: stat) -> UInt64? {
        let stamp = FileStamp(status)
        // Ask again in hls for a closed file, because its playlists may have changed.
        if let known = node.known, known.stamp == stamp, source.format.layout != .hls || node.openFile != nil {
            return known.length
        }
        if let length = source.knownLength(status, path: { path(of: node) }) { return length }
        guard let (file, status) = try? openSource(node), FileStamp(status) == stamp,
            let plan = try? source.plan(for: path(of: node), file), let keys = availableKeys(plan)
        else { return nil }
        let token = tokenOfContent(of: node, stamp, plan)
        let content = try? plan.open(
            file, keys: keys, from: source.keys, waits: !isMounted, token: token, cache: cache, counters: counters)
        guard let content else { return nil }
        node.remember(.init(stamp: stamp, plan: plan.identity, token: token, length: content.length))
        return content.length
    }

    // MARK: Access lists

    private static let accessListPrefix = Array("system.posix_acl_".utf8)

    /// Returns an ACL of the source, but no other attribute, so that its rights are those of the view. The kernel asks
    /// for it before it admits anyone but the owner, and passes on any error but ENODATA (fuse_get_acl in
    /// fs/fuse/acl.c).
    package func attribute(_ id: NodeID, _ name: [UInt8]) throws(StoreError) -> [UInt8] {
        guard name.starts(with: Self.accessListPrefix) else { throw .system(.notSupported) }
        do throws(StoreError) { return try extendedAttributes(id).value(of: name) } catch .system(.notSupported) {
            // The source has no ACLs.
            throw .system(.noData)
        }
    }

    package func attributeNames(_ id: NodeID) throws(StoreError) -> [[UInt8]] {
        try extendedAttributes(id).namesIfSupported().filter { $0.starts(with: Self.accessListPrefix) }
    }

    private func extendedAttributes(_ id: NodeID) throws(StoreError) -> ExtendedAttributes {
        let node = try nodes.node(id)
        if node === nodes.root { return ExtendedAttributes(source.root) }
        try admit()
        if let file = node.openFile { return ExtendedAttributes(file.source.descriptor) }
        return ExtendedAttributes(
            try atName(of: node) { (directory, entry) throws(StoreError) in
                try Descriptor(at: directory, entry, flags: linux_O_PATH)
            })
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

    /// Finds the source's entry of a name in the view: the name itself, or the name with the suffix hidden by the view.
    private func find(
        _ name: [UInt8], in directory: Descriptor, isRoot: Bool
    ) throws(StoreError) -> (entry: Component, status: stat) {
        do throws(StoreError) {
            guard source.shows(name, inRoot: isRoot) else { throw .system(.noSuchFileOrDirectory) }
            let entry = try Component(name)
            return (entry, try directory.status(of: entry))
        } catch .system(.noSuchFileOrDirectory) {
            let entry = try Component(name + source.strippedSuffix)
            guard entry.bytes != name, source.shows(entry.bytes, inRoot: isRoot) else {
                throw .system(.noSuchFileOrDirectory)
            }
            let status = try directory.status(of: entry)
            guard status.st_mode & S_IFMT != S_IFDIR else { throw .system(.noSuchFileOrDirectory) }
            return (entry, status)
        }
    }

    /// Returns the name for a listing. If the source has both names, each entry keeps its own.
    private func shownName(of listed: ListedEntry, in directory: Descriptor) -> [UInt8] {
        let suffix = source.strippedSuffix
        guard !suffix.isEmpty, listed.name.count > suffix.count, listed.name.suffix(suffix.count).elementsEqual(suffix),
            listed.attributes.st_mode & S_IFMT != S_IFDIR
        else { return listed.name }
        guard let stripped = try? Component(Array(listed.name.dropLast(suffix.count))) else { return listed.name }
        return (try? directory.status(of: stripped)) == nil ? stripped.bytes : listed.name
    }

    private func entry(_ status: stat, _ name: Component, _ parent: ViewNode) -> NodeEntry {
        let node = nodes.intern(status, parent: parent, entry: name)
        source.wasLookedUp({ path(of: node) }, name: name.bytes)
        return NodeEntry(id: nodes.id(of: node), attributes: plaintextAttributes(status, of: node))
    }

    package func forget(_ id: NodeID, count: UInt64) { nodes.forget(id, count: Int(clamping: count)) }

    /// Returns the target unchanged, as readlink(2), so the kernel resolves it in the mount.
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
        let isAtEnd = try list(handle.reader, from: offset, accept) { directory, found, listed in
            guard source.shows(listed.name, inRoot: isRoot) else { return false }
            let name = shownName(of: listed, in: directory)
            defer { listed.name = name }
            if !withAttributes { return true }
            // Another program has removed it since getdents(2).
            guard let status = try? directory.status(of: found) else { return false }
            let entry = entry(status, found, handle.node)
            (listed.id, listed.attributes) = (entry.id, entry.attributes)
            return true
        }
        if isAtEnd { wasListed(handle.node) }
    }
}

/// The files of a view that cannot be read, for `status` and the log. One line a file, the newest last. Any thread.
final class ViewProblems: Sendable {
    private static let maximumCount = 100

    private let logger: Logger
    private let lines = Mutex<[(path: [UInt8], text: String)]>([])

    init(logger: Logger) { self.logger = logger }

    /// Adds and logs a problem, unless it is the file's last known one.
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

    /// Removes the problem of a file after a successful open.
    func clear(_ path: [UInt8]) { lines.withLock { $0.removeAll { $0.path == path } } }

    var all: [String] { lines.withLock { $0.map { Self.line($0.path, $0.text) } } }

    private static func line(_ path: [UInt8], _ text: String) -> String { "\(shown(path)): \(text)" }
}

extension ViewFileSystem: ReadOnlyFileSystem {
    package var ownsSource: Bool { false }

    package func makeWorkspace() throws(StoreError) -> ViewWorkspace {
        do { return try ViewWorkspace() } catch { throw storeError(error, of: []) }
    }

    package func statistics() -> Statistics { Statistics(counters, cache: cache, nodes: nodes.count) }

    /// Returns the problems of the view, one line each for people.
    package func problems() -> [String] { source.problems + fileProblems.all }

    package func openInodes() -> [UInt64] { nodes.all.filter { $0.openFile != nil }.map { nodes.id(of: $0).rawValue } }

    package func setAttributeObserver(_ observer: @escaping @Sendable (UInt64) -> Void) {
        attributeObserver.set(observer)
    }

    package func path(of id: NodeID) -> ObjectPath? {
        guard let node = try? nodes.node(id), node === nodes.root || nodes.name(of: node) != nil else { return nil }
        let path = path(of: node)
        return ObjectPath(stored: path, plaintext: path)
    }

    /// Number of tries to open a file, because its keys may be dropped before they are used.
    private static let maximumRetries = 3

    /// Opens a file. Defers the open if keys must be fetched, which can take as long as a key command.
    package func beginOpening(
        _ id: NodeID, flags: Int32, for caller: Caller, workspace: ViewWorkspace
    ) throws(StoreError) -> Opening<ViewHandle> {
        let node = try nodes.node(id)
        try admit()
        if flags & O_ACCMODE != O_RDONLY || flags & O_TRUNC != 0 { throw .system(.readOnlyFileSystem) }
        switch try tryOpen(node) {
        case .opened(let handle): return .opened(handle)
        case .missing(let names):
            // The node stays known, because the kernel keeps its reference to it while it waits.
            return .deferred(runsCommand: names.contains(where: \.mayComeFromCommand)) { [self] () throws(StoreError) in
                try open(node, fetching: names)
            }
        }
    }

    private func open(_ node: ViewNode, fetching names: [KeyName]) throws(StoreError) -> ViewHandle {
        let inFlight = gate.register()
        defer { gate.unregister(inFlight) }
        for _ in 0..<Self.maximumRetries {
            var failure: ViewError?
            do throws(ViewError) { for name in names { _ = try source.keys.fetch(name) } } catch { failure = error }
            // Enter the gate only now: a lock waits for threads that use keys, but not for threads that wait for keys.
            gate.enter(inFlight)
            defer {
                linux_scrub_thread()
                gate.leave(inFlight)
            }
            if let failure { throw storeError(failure, of: path(of: node)) }
            try admit()
            if case .opened(let handle) = try tryOpen(node) { return handle }
        }
        throw .locked
    }

    private enum Attempt {
        case opened(ViewHandle)
        case missing([KeyName])
    }

    private func tryOpen(_ node: ViewNode) throws(StoreError) -> Attempt {
        let (file, status) = try openSource(node)
        let path = path(of: node)
        do throws(ViewError) {
            let plan = try source.plan(for: path, file)
            let stamp = FileStamp(status)
            if let open = node.reopen(stamp, plan) {
                return .opened(handle(open.file, node, open.token, open.caching))
            }
            guard let keys = availableKeys(plan) else { return .missing(plan.keyNames) }
            let token = tokenOfContent(of: node, stamp, plan)
            let opened = ViewFile(try open(plan, file, keys, token), of: file, keyNames: plan.keyNames)
            let caching = node.open(
                opened, .init(stamp: stamp, plan: plan.identity, token: token, length: opened.length))
            fileProblems.clear(path)
            return .opened(handle(opened, node, token, caching))
        } catch {
            throw storeError(error, of: path)
        }
    }

    private func open(
        _ plan: FilePlan, _ file: SourceFile, _ keys: [KeyMaterial], _ token: UInt64
    ) throws(ViewError) -> OpenContent {
        do throws(ViewError) {
            let content = try plan.open(
                file, keys: keys, from: source.keys, waits: !isMounted, token: token, cache: cache, counters: counters)
            source.keys.prove(plan.keyNames)
            return content
        } catch {
            // Drop the keys, because one may be wrong.
            if case .store = error {} else { source.keys.dropUnproven(plan.keyNames) }
            throw error
        }
    }

    private func handle(_ file: ViewFile, _ node: ViewNode, _ token: UInt64, _ caching: PageCaching) -> ViewHandle {
        handles.add(1, ordering: .acquiringAndReleasing)
        let size = Int64(file.length)
        let hasChanged = node.reportedSize.withLock { reported in
            defer { reported = size }
            return reported != size
        }
        // Notify before the open returns, so that the program's fstat(2) gets the new size.
        if hasChanged { attributeObserver.notify(nodes.id(of: node).rawValue) }
        return ViewHandle(node: node, token: token, caching: caching)
    }

    package func release(_ handle: ViewHandle) {
        handle.node.release()
        handles.subtract(1, ordering: .acquiringAndReleasing)
    }

    package func pageCaching(of handle: ViewHandle) -> PageCaching { handle.caching }

    package func read(
        _ handle: ViewHandle, at plaintextOffset: UInt64, into buffer: UnsafeMutableRawBufferPointer,
        workspace: ViewWorkspace
    ) throws(StoreError) -> Int {
        try admit()
        let file = handle.file
        handle.confirmDroppedPages()
        do throws(ViewError) {
            do throws(ViewError) {
                return try file.content.read(
                    at: plaintextOffset, into: buffer, isAhead: handle.sequence.isAhead, workspace: workspace)
            } catch .store(.locked) {
                // Restore the keys, which may have been fetched after the unlock.
                file.restoreKeys(from: source.keys)
                return try handle.file.content.read(at: plaintextOffset, into: buffer, workspace: workspace)
            }
        } catch {
            throw storeError(error, of: path(of: handle.node))
        }
    }

    package func readAhead(_ handle: ViewHandle, at plaintextOffset: UInt64, workspace: ViewWorkspace) -> UInt64? {
        // Ignore an error, because the read itself reports it.
        try? handle.node.openFile?.content.readAhead(at: plaintextOffset, workspace: workspace)
    }

    /// Returns the length or the offset, as lseek(2), because ciphertext has no holes.
    package func seek(_ handle: ViewHandle, from plaintextOffset: UInt64, toHole: Bool) throws(StoreError) -> UInt64 {
        try admit()
        let length = handle.file.length
        guard plaintextOffset < length else { throw .system(.noSuchAddressOrDevice) }
        return toHole ? length : plaintextOffset
    }

    /// Records and logs a file's problem, and returns the error for the program.
    func storeError(_ error: ViewError, of path: [UInt8]) -> StoreError {
        switch error {
        case .malformed(let text) where !isMounted: return .damaged(text)
        case .noKey(let text) where !isMounted: return .crypto(text)
        case .malformed(let text):
            counters.damagedReads.count()
            fileProblems.add(text, of: path)
            return .system(.ioError)
        case .noKey(let text):
            fileProblems.add(text, of: path)
            return .locked
        case .store(let error): return error
        }
    }

    // MARK: The source

    /// Returns a descriptor of a directory, for access by name, but not for listing.
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
        of node: ViewNode, _ body: (Descriptor, Component) throws(StoreError) -> Result
    ) throws(StoreError) -> Result {
        try nodes.atName(of: node, in: { (node) throws(StoreError) in try directory(node) }, body)
    }

    /// Opens the source of a regular file.
    /// - Throws: `ESTALE` if the name now leads to another file. The kernel then looks the name up again.
    func openSource(_ node: ViewNode) throws(StoreError) -> (source: SourceFile, status: stat) {
        guard node.isRegularFile else { throw .system(node.isDirectory ? .isDirectory : .invalidArgument) }
        let descriptor = try atName(of: node) { (directory, entry) throws(StoreError) in
            try Descriptor(at: directory, entry, flags: O_RDONLY | O_NONBLOCK)
        }
        let status = try descriptor.status()
        guard FileIdentity(status) == node.key else { throw .system(.staleNFSFileHandle) }
        return (SourceFile(descriptor, status), status)
    }

    /// Returns the path from the source's root; empty for a node without a name.
    func path(of node: ViewNode) -> [UInt8] { nodes.storedPath(of: node) }

    /// Returns the keys of a file, or nil if one is not in memory, or has changed on the disk.
    func availableKeys(_ plan: FilePlan) -> [KeyMaterial]? {
        let keys = plan.keyNames.compactMap { source.keys.findCurrent($0) }
        return keys.count == plan.keyNames.count ? keys : nil
    }

    /// Returns the token of a file's content in the block cache. It is new if the file or its plan has changed.
    func tokenOfContent(of node: ViewNode, _ stamp: FileStamp, _ plan: FilePlan) -> UInt64 {
        if let known = node.known, known.stamp == stamp, known.plan == plan.identity { return known.token }
        return nextToken.add(1, ordering: .relaxed).oldValue
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

/// The directories in which to prefetch the keys of the files, in order.
struct PrefetchQueue {
    struct Directory {
        /// The directory, opened at its turn, because the prefetch is slower than listings, and descriptors are scarce.
        var node: ViewNode
        /// True to include all directories below.
        var isWholeTree: Bool
    }

    /// The most waiting directories. Further listings are ignored.
    private static let maximumCount = 10_000

    private var directories: [Directory] = []
    var isEnding = false

    mutating func add(_ node: ViewNode, isWholeTree: Bool) {
        if directories.count < Self.maximumCount { directories.append(.init(node: node, isWholeTree: isWholeTree)) }
    }

    mutating func next() -> Next<Directory> {
        if isEnding { return .end }
        return directories.isEmpty ? .wait : .item(directories.removeFirst())
    }
}

/// Prefetches keys: of a directory's files after it was listed, or of the whole tree (`--prewarm`).
extension ViewFileSystem {
    private static let maximumDepth = 128

    package func prefetchAll() { prefetches.update { $0.add(nodes.root, isWholeTree: true) } }

    package func runInBackground() {
        while let next = prefetches.next({ $0.next() }) {
            // Skip an unreadable directory. An open will report it.
            guard let descriptor = try? directory(next.node) else { continue }
            try? prefetch(descriptor, path(of: next.node), depth: next.isWholeTree ? Self.maximumDepth : 0)
        }
    }

    package func willEnd() { source.interruption.end() }

    package func shutDown() { prefetches.update { $0.isEnding = true } }

    package func endDeferred() {
        prefetches.update { $0.isEnding = true }
        // Stop fetching keys. The waiting opens get an error.
        source.keys.stop()
    }

    /// Prefetches the keys of a directory's files, once. Call this at the end of a listing.
    func wasListed(_ node: ViewNode) {
        guard source.prefetchesListed, !node.wasListed.exchange(true, ordering: .relaxed) else { return }
        prefetches.update { $0.add(node, isWholeTree: false) }
    }

    /// - Parameter depth: the levels of directories below to include.
    private func prefetch(_ directory: Descriptor, _ path: [UInt8], depth: Int) throws(StoreError) {
        let listed = try directory.openedForReading()
        var reader = DirectoryReader(listed)
        var wanted: [KeyName] = []
        // A file for each key, for messages.
        var files: [KeyName: [UInt8]] = [:]
        while !prefetches.access({ $0.isEnding }), let entry = try reader.next() {
            guard source.shows(entry.bytes, inRoot: path.isEmpty) else { continue }
            let inside = joinedPath(path, entry.bytes)
            guard let status = try? listed.status(of: entry) else { continue }
            if status.st_mode & S_IFMT == S_IFDIR, depth > 0 {
                guard let below = try? Descriptor(at: listed, entry, flags: linux_O_PATH | O_DIRECTORY)
                else { continue }
                // Go on after an unreadable directory.
                try? prefetch(below, inside, depth: depth - 1)
            } else if status.st_mode & S_IFMT == S_IFREG {
                for name in missingKeys(of: entry, inside, in: listed) where files[name] == nil {
                    files[name] = inside
                    wanted.append(name)
                }
            }
        }
        if !gate.isUnlocked() { return }
        source.keys.prefetch(wanted) { [fileProblems, source, files] name, outcome in
            // Report a missing key, unless an open has fetched it meanwhile.
            guard case .failure(.noKey(let text)) = outcome, source.keys.find(name) == nil, let file = files[name]
            else { return }
            fileProblems.add(text, of: file)
        }
    }

    /// Returns the keys of a file that are not in memory.
    private func missingKeys(of name: Component, _ path: [UInt8], in directory: Descriptor) -> [KeyName] {
        guard let file = try? Descriptor(at: directory, name, flags: O_RDONLY | O_NONBLOCK),
            let status = try? file.status(), status.st_mode & S_IFMT == S_IFREG,
            let plan = try? source.plan(for: path, SourceFile(file, status))
        else { return [] }
        return plan.keyNames.filter { source.keys.find($0) == nil }
    }
}

/// Locks and unlocks open files, all of the class complete. Called by the lock controller's thread.
extension ViewFileSystem: LockableFileSystem {
    /// Time for which an unlock waits for the keys of open files, in seconds. A key command can take much longer.
    private static let keyTimeout = 2

    package var openHandles: Int { handles.load(ordering: .acquiring) }
    package var presentKeys: [String] { source.keys.isClosed ? [] : ["view"] }

    package func setLockController(_ controller: LockController) { lockController.withLock { $0 = controller } }

    package func inodesToDrop() -> [UInt64] {
        var (open, others): ([UInt64], [UInt64]) = ([], [])
        for node in nodes.allLeavesFirst where node !== nodes.root {
            let id = nodes.id(of: node).rawValue
            if node.openFile != nil { open.append(id) } else { others.append(id) }
        }
        return open + others
    }

    package func knownNames() -> [KnownName] {
        nodes.allNames().map { node, name in
            KnownName(
                parent: nodes.id(of: name.parent).rawValue, name: name.entry.bytes,
                mayBeInUse: node.isDirectory || node.openFile != nil)
        }
    }

    package func closeDirectories() { _ = directories.removeAll() }

    package func forgetKeys(everything: Bool) -> [String] {
        let present = presentKeys
        source.keys.forget()
        secrets.forget()
        for node in nodes.all { node.openFile?.forgetKeys() }
        closeDirectories()
        // Wait last, because it can take long, and the lock has a timeout.
        source.keys.waitForLoads()
        return present
    }

    package var needsSecret: Bool { secrets.needsPassphrase }

    package func restoreKeys(_ secret: SecretBytes?) throws(UnlockRefusal) {
        source.keys.reopen(shared: try secrets.restore(secret))
        let open = nodes.all.compactMap(\.openFile)
        for file in open { file.restoreKeys(from: source.keys) }
        let missing = Set(open.filter { !$0.hasKeys }.flatMap(\.keyNames)).union(source.keys.given.map(KeyName.given))
        // Wait for a while, so that programs with open files see no error. Later keys are restored by a read, but not
        // by another thread, because the view may be locked again by then.
        let outcomes = Monitor(0)
        let wanted = source.keys.prefetch(Array(missing)) { _, _ in outcomes.update { $0 += 1 } }
        _ = outcomes.wait(until: .now + .seconds(Self.keyTimeout)) { $0 >= wanted ? () : nil }
        for file in open { file.restoreKeys(from: source.keys) }
    }

    package func detachedDirectories(all: Bool) -> [[UInt8]] {
        nodes.directories(all: all).map { [UInt8(ascii: "/")] + path(of: $0) }
    }

    package func attachedDirectories() { nodes.forgetRefusals() }
}
