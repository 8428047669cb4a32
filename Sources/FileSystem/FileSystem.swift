package import Glibc
package import LinuxSystem

/// What a FUSE session serves: inodes, names and open files, as the kernel asks for them. Called by many worker threads.
/// The kernel lets one request at a time change a directory, and decides who may do what (default_permissions).
package protocol FileSystem: AnyObject, Sendable {
    /// An open file, and an open directory, until it is released.
    associatedtype File: AnyObject & Sendable
    associatedtype Directory: AnyObject & Sendable
    /// One thread's buffers and contexts.
    associatedtype Workspace: WorkerBuffers

    /// Seconds for which the kernel may keep names and attributes.
    var cacheSeconds: Double { get }
    func makeWorkspace() throws(StoreError) -> Workspace
    /// Work beside the requests, on a thread of its own, until `shutDown`.
    func runInBackground()
    /// No more requests come: makes everything durable.
    func shutDown()
    /// The totals and what is held, as of now.
    func statistics() -> Statistics
    /// The inodes of open files.
    func openInodes() -> [UInt64]
    /// Called, by any thread, with an inode whose attributes are not those that were told.
    func setAttributeObserver(_ observer: @escaping @Sendable (UInt64) -> Void)

    func attributes(_ id: NodeID) throws(StoreError) -> stat
    func change(
        _ id: NodeID, _ changes: AttributeChanges, handle: File?, workspace: Workspace
    ) throws(StoreError) -> stat
    /// Clears the set-id bits before a file's content changes, as the kernel does for one who may not keep them
    /// (setattr_should_drop_suidgid in fs/attr.c). Told are only changes that the kernel leaves this to us for.
    func dropSetID(_ id: NodeID, for caller: () -> Caller) throws(StoreError)
    /// statvfs(3).
    func space() throws(StoreError) -> statvfs
    func attribute(_ id: NodeID, _ name: [UInt8]) throws(StoreError) -> [UInt8]
    func attributeNames(_ id: NodeID) throws(StoreError) -> [[UInt8]]
    func setAttribute(_ id: NodeID, _ name: [UInt8], value: [UInt8], flags: Int32) throws(StoreError)
    func removeAttribute(_ id: NodeID, _ name: [UInt8]) throws(StoreError)

    /// Finds a name; counts as one lookup. Throws `ENOENT`.
    func lookUp(_ name: [UInt8], in parent: NodeID) throws(StoreError) -> NodeEntry
    /// The kernel has dropped `count` lookups of a node.
    func forget(_ id: NodeID, count: UInt64)
    func linkTarget(_ id: NodeID) throws(StoreError) -> [UInt8]
    func makeNode(
        _ name: [UInt8], in parent: NodeID, mode: mode_t, device: dev_t, for caller: Caller
    ) throws(StoreError) -> NodeEntry
    func makeDirectory(
        _ name: [UInt8], in parent: NodeID, mode: mode_t, for caller: Caller
    ) throws(StoreError) -> NodeEntry
    func makeLink(
        _ name: [UInt8], in parent: NodeID, target: [UInt8], for caller: Caller
    ) throws(StoreError) -> NodeEntry
    func link(_ id: NodeID, as name: [UInt8], in parent: NodeID, for caller: Caller) throws(StoreError) -> NodeEntry
    func unlink(_ name: [UInt8], in parent: NodeID) throws(StoreError)
    func removeDirectory(_ name: [UInt8], in parent: NodeID) throws(StoreError)
    /// renameat2(2).
    func rename(
        _ name: [UInt8], in parent: NodeID, to newName: [UInt8], in newParent: NodeID, flags: UInt32,
        for caller: Caller
    ) throws(StoreError)

    func openDirectory(_ id: NodeID) throws(StoreError) -> Directory
    func release(_ handle: Directory)
    func synchronize(_ handle: Directory, dataOnly: Bool) throws(StoreError)
    /// getdents(2) from an offset that a listing gave, 0 for the beginning, until `take` returns false: that entry is
    /// the first of the next call.
    func list(
        _ handle: Directory, from offset: Int64, withAttributes: Bool, _ take: (ListedEntry) -> Bool
    ) throws(StoreError)

    /// open(2) of a file that exists. What would take long is not waited for: it calls `deferring` for a function that is
    /// to have the outcome, once, on any thread, and returns nil.
    func open(
        _ id: NodeID, flags: Int32, for caller: Caller, workspace: Workspace, deferring: () -> OpenOutcome<File>
    ) throws(StoreError) -> File?
    /// Ends all that has been deferred; returns when every outcome was given. No requests come any more.
    func endDeferred()
    func create(
        _ name: [UInt8], in parent: NodeID, mode: mode_t, flags: Int32, for caller: Caller
    ) throws(StoreError) -> (entry: NodeEntry, handle: File)
    func release(_ handle: File)
    func pageCaching(of handle: File) -> PageCaching
    func read(
        _ handle: File, at plaintextOffset: UInt64, into buffer: UnsafeMutableRawBufferPointer, workspace: Workspace
    ) throws(StoreError) -> Int
    /// - Parameter isWriteBack: a dirty mapped page comes back from the kernel.
    func write(
        _ handle: File, _ data: UnsafeRawBufferPointer, at plaintextOffset: UInt64, isWriteBack: Bool,
        workspace: Workspace
    ) throws(StoreError) -> Int
    func synchronize(_ handle: File, dataOnly: Bool) throws(StoreError)
    /// fallocate(2).
    func allocate(_ handle: File, mode: Int32, range: Range<UInt64>, workspace: Workspace) throws(StoreError)
    /// lseek(2) with SEEK_DATA or SEEK_HOLE.
    func seek(_ handle: File, from plaintextOffset: UInt64, toHole: Bool) throws(StoreError) -> UInt64
    /// copy_file_range(2).
    func copy(
        from source: File, at sourceOffset: UInt64, to destination: File, at destinationOffset: UInt64, count: Int,
        workspace: Workspace
    ) throws(StoreError) -> Int
}

/// Takes what came of an open(2).
package typealias OpenOutcome<File> = @Sendable (Result<File, StoreError>) -> Void

/// What the kernel's page cache may do with a file that is being opened.
package enum PageCaching: Sendable {
    /// Pages that it has are right.
    case keep
    /// Pages that it has may be another content's.
    case drop
    /// Each read is to be answered exactly.
    case bypass
}

/// One worker thread's buffers. Not for sharing.
package protocol WorkerBuffers: AnyObject {
    /// Plaintext to be handed to the kernel.
    var reply: UnsafeMutableRawBufferPointer { get }
    /// Zeroes the buffers and forgets the keys last used. By its own thread, between requests.
    func wipe()
}
