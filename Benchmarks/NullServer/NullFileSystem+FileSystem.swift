internal import FileSystem
internal import Glibc
internal import LinuxSystem
internal import Synchronization
internal import SystemPackage

extension NullFileSystem: FileSystem {
    /// As a vault's.
    var cacheSeconds: Double { 60 }

    func makeWorkspace() -> NullWorkspace { NullWorkspace() }
    func runInBackground() {}
    func shutDown() {}
    func endDeferred() {}
    func openInodes() -> [UInt64] { [] }
    func setAttributeObserver(_ observer: @escaping @Sendable (UInt64) -> Void) {}

    func statistics() -> Statistics { Statistics(counters, cache: cache, nodes: 0) }

    // MARK: Files

    func open(
        _ id: NodeID, flags: Int32, for caller: Caller, workspace: NullWorkspace, deferring: () -> OpenOutcome<NullNode>
    ) throws(StoreError) -> NullNode? {
        let node = try node(id)
        if flags & O_TRUNC != 0 { node.length.store(0, ordering: .relaxed) }
        return node
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

    func list(_ handle: NullListing, from offset: Int64, withAttributes: Bool, _ take: (ListedEntry) -> Bool) {
        tree.withLock { _ in
            for position in min(Int(offset), handle.entries.count)..<handle.entries.count {
                let (name, node) = handle.entries[position]
                var listed = ListedEntry(name: name, attributes: node.attributes, nextOffset: Int64(position + 1))
                if withAttributes && position > 1 {
                    let entry = node.entry()
                    (listed.id, listed.attributes) = (entry.id, entry.attributes)
                }
                if take(listed) { continue }
                if listed.id != nil { node.forget(1) }
                return
            }
        }
    }
}
