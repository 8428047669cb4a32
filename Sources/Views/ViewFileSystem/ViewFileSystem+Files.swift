internal import CLinux
package import FileSystem
internal import Glibc
package import LinuxSystem
internal import Locking
internal import Synchronization
internal import SystemPackage
package import ViewFormats

extension ViewFileSystem: ReadOnlyFileSystem {
    package var ownsSource: Bool { false }

    package func makeWorkspace() throws(StoreError) -> ViewWorkspace {
        do { return try ViewWorkspace() } catch { throw storeError(error, of: []) }
    }

    package func statistics() -> Statistics { Statistics(counters, cache: cache, nodes: nodes.count) }

    /// Problems of the view, one line each for people.
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

    /// Number of times that keys may be dropped before they are used.
    private static let maximumRetries = 3

    /// Defers the open if keys must be fetched, which can take as long as a key command.
    package func beginOpening(
        _ id: NodeID, flags: Int32, for caller: Caller, workspace: ViewWorkspace
    ) throws(StoreError) -> Opening<ViewHandle> {
        let node = try nodes.node(id)
        try admit()
        if flags & O_ACCMODE != O_RDONLY || flags & O_TRUNC != 0 { throw .system(.readOnlyFileSystem) }
        switch try tryOpen(node) {
        case .opened(let handle): return .opened(handle)
        case .missing(let names):
            // The kernel keeps its reference to the node while it waits.
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
            // A lock waits for threads that use keys, but not for threads that wait for keys.
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
            let plan = try source.plan(for: path, file, status)
            let stamp = FileStamp(status)
            if let open = node.reopen(stamp, plan) {
                return .opened(handle(open.file, node, open.token, open.caching))
            }
            guard let keys = availableKeys(plan) else { return .missing(plan.keyNames) }
            let token = tokenOfContent(of: node, stamp, plan)
            let opened = ViewFile(try open(plan, file, keys, token), of: file, keyNames: plan.keyNames)
            let caching = node.open(opened, .init(stamp: stamp, plan: plan, token: token, length: opened.length))
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
            // The key may be wrong.
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
        // Before the open returns, so that the program's fstat(2) gets the new size.
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
                // The keys may have been fetched after the unlock.
                file.restoreKeys(from: source.keys)
                return try handle.file.content.read(at: plaintextOffset, into: buffer, workspace: workspace)
            }
        } catch {
            throw storeError(error, of: path(of: handle.node))
        }
    }

    package func readAhead(_ handle: ViewHandle, at plaintextOffset: UInt64, workspace: ViewWorkspace) -> UInt64? {
        // The read itself reports an error.
        try? handle.node.openFile?.content.readAhead(at: plaintextOffset, workspace: workspace)
    }

    /// lseek(2): there are no holes in ciphertext.
    package func seek(_ handle: ViewHandle, from plaintextOffset: UInt64, toHole: Bool) throws(StoreError) -> UInt64 {
        try admit()
        let length = handle.file.length
        guard plaintextOffset < length else { throw .system(.noSuchAddressOrDevice) }
        return toHole ? length : plaintextOffset
    }

    /// Records and logs a file's problem. Returns the error for the program.
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
    func path(of node: ViewNode) -> [UInt8] { nodes.storedPath(of: node) }

    /// The keys of a file. Nil if one is not in memory.
    func availableKeys(_ plan: FilePlan) -> [KeyMaterial]? {
        let keys = plan.keyNames.compactMap { source.keys.find($0) }
        return keys.count == plan.keyNames.count ? keys : nil
    }

    /// The token of a file's content in the block cache. New if the file or its plan has changed.
    func tokenOfContent(of node: ViewNode, _ stamp: FileStamp, _ plan: FilePlan) -> UInt64 {
        if let known = node.known, known.stamp == stamp, known.plan.isSame(as: plan) { return known.token }
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
