internal import CLinux
package import Glibc
package import LinuxSystem
package import Synchronization
internal import SystemPackage

/// A file system served by a FUSE session: inodes, names and open files. Many worker threads call it, but the kernel
/// lets only one request at a time change a directory. The kernel also checks permissions (default_permissions), unless
/// only this process's user can enter the mount and the file system checks them itself (`checksAccess`).
///
/// Each function throws the error for the calling program: errno of its system call, `.locked` or `.expired` while the
/// file system refuses that call, and `.damaged` (`EIO`) for data that does not authenticate.
package protocol FileSystem: AnyObject, Sendable {
    /// An open file and an open directory, until they are released.
    associatedtype File: OpenFile
    associatedtype Directory: AnyObject & Sendable
    /// One thread's buffers and contexts.
    associatedtype Workspace: WorkerBuffers

    /// True if only this process changes the source. The kernel may then keep its pages and attributes.
    var ownsSource: Bool { get }
    /// True if `checkAccess` and the changes respect the rights of this process's user in the store.
    var checksAccess: Bool { get }
    func makeWorkspace() throws(StoreError) -> Workspace
    /// Does background work until `shutDown`. Called on a thread of its own.
    func runInBackground()
    /// Informs the file system of the error with which a call has failed and its request is answered.
    func failed(_ error: StoreError)
    /// Announces the mount's end, so that long computations stop with an error. Requests may still come.
    func willEnd()
    /// Makes everything durable. Called after the last request.
    func shutDown()
    /// Makes all written data durable, in the files where a reader of the store expects it.
    func synchronizeEverything() throws(StoreError)
    func statistics() -> Statistics
    func openInodes() -> [UInt64]
    /// Sets the function to call, from any thread, with an inode whose attributes differ from those last returned.
    func setAttributeObserver(_ observer: @escaping @Sendable (UInt64) -> Void)
    /// Sets the function to call, from any thread, with damage that was found outside of requests.
    func setDamageObserver(_ observer: @escaping @Sendable (Damage) -> Void)
    /// Returns the object's path, for a message. Nil if it has no name.
    func path(of id: NodeID) -> ObjectPath?

    func attributes(_ id: NodeID) throws(StoreError) -> stat
    func change(
        _ id: NodeID, _ changes: AttributeChanges, handle: File?, workspace: Workspace
    ) throws(StoreError) -> stat
    /// Checks like access(2) for this process's user: R_OK, W_OK or X_OK, or several of them.
    /// - Parameter isOpening: true if an open of the file follows, which itself refuses what the store refuses then.
    func checkAccess(_ id: NodeID, _ mask: Int32, isOpening: Bool) throws(StoreError)
    /// Clears the set-id bits before a change of a file's content, as the kernel does for callers without the right to
    /// keep them (setattr_should_drop_suidgid in fs/attr.c). Called only if the kernel leaves this to us.
    func dropSetID(_ id: NodeID, for caller: () -> Caller) throws(StoreError)
    /// Returns the space, as for statvfs(3).
    func space() throws(StoreError) -> statvfs
    func attribute(_ id: NodeID, _ name: [UInt8]) throws(StoreError) -> [UInt8]
    func attributeNames(_ id: NodeID) throws(StoreError) -> [[UInt8]]
    /// Does setxattr(2), or removexattr(2) without a value.
    func setAttribute(_ id: NodeID, _ name: [UInt8], value: [UInt8]?, flags: Int32) throws(StoreError)

    /// Finds a name, and counts one lookup. Throws `ENOENT`.
    func lookUp(_ name: [UInt8], in parent: NodeID) throws(StoreError) -> NodeEntry
    /// Removes `count` lookups of a node, which the kernel has dropped.
    func forget(_ id: NodeID, count: UInt64)
    func linkTarget(_ id: NodeID) throws(StoreError) -> [UInt8]
    func make(
        _ name: [UInt8], in parent: NodeID, _ object: NewObject, for caller: Caller
    ) throws(StoreError) -> NodeEntry
    func remove(_ name: [UInt8], in parent: NodeID, isDirectory: Bool) throws(StoreError)
    func rename(
        _ name: [UInt8], in parent: NodeID, to newName: [UInt8], in newParent: NodeID, flags: UInt32,
        for caller: Caller
    ) throws(StoreError)

    func openDirectory(_ id: NodeID) throws(StoreError) -> Directory
    func release(_ handle: Directory)
    func synchronize(_ handle: Directory, dataOnly: Bool) throws(StoreError)
    /// Lists a directory, as getdents(2) does, from an offset of an earlier listing, or 0 for the start, until `accept`
    /// returns false. The refused entry is the first of the next call.
    func list(
        _ handle: Directory, from offset: Int64, withAttributes: Bool, _ accept: (ListedEntry) -> Bool
    ) throws(StoreError)

    /// Opens an existing file (open(2)). Defers the part that may take long.
    func beginOpening(
        _ id: NodeID, flags: Int32, for caller: Caller, workspace: Workspace
    ) throws(StoreError) -> Opening<File>
    /// Makes deferred opens end soon, with an error. Called after the last request.
    func endDeferred()
    func create(
        _ name: [UInt8], in parent: NodeID, mode: mode_t, flags: Int32, for caller: Caller
    ) throws(StoreError) -> (entry: NodeEntry, handle: File)
    func release(_ handle: File)
    func pageCaching(of handle: File) -> PageCaching
    func read(
        _ handle: File, at plaintextOffset: UInt64, into buffer: UnsafeMutableRawBufferPointer, workspace: Workspace
    ) throws(StoreError) -> Int
    /// Decrypts the piece at this offset into the block cache, ahead of a read. Returns its end, or `.max` at the end
    /// of the file. Nil if it cannot be read now. The handle may already be released.
    func readAhead(_ handle: File, at plaintextOffset: UInt64, workspace: Workspace) -> UInt64?
    /// - Parameter isWriteBack: true if the kernel writes a dirty mapped page back.
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

/// An object to be made under a name.
package enum NewObject: Sendable {
    case directory(mode: mode_t)
    case link(target: [UInt8])
    case hardLink(of: NodeID)
    /// mknod(2), also of a regular file.
    case node(mode: mode_t, device: dev_t)
}

/// The result of open(2).
package enum Opening<File> {
    case opened(File)
    /// The function opens the file, which may take long. Call it once, outside of the gate, on a thread that may block.
    /// - Parameter runsCommand: true if it may wait for a command, because other opens must not wait for commands.
    case deferred(runsCommand: Bool, @Sendable () throws(StoreError) -> File)
}

/// The use of the kernel's page cache for a file being opened.
package enum PageCaching: Sendable {
    /// The kernel's pages are current.
    case keep
    /// The kernel's pages may have other content.
    case drop
    /// The kernel must bypass its cache, so that each read reaches us with its exact range.
    case bypass
    /// The kernel's pages and size are outdated. The file must be looked up, then opened again.
    case outdated
}

/// One worker thread's buffers. Only that thread uses them.
package protocol WorkerBuffers: AnyObject, SendableMetatype {
    /// Plaintext for a reply.
    var reply: UnsafeMutableRawBufferPointer { get }
    /// Zeroes the buffers and the key schedules. Called between requests.
    func wipe()
}

/// The buffers of a file system that shares large requests with a helper.
package protocol SharingWorkerBuffers: WorkerBuffers {
    /// The helper that does a part of a large request. Nil if the thread serves each request alone.
    var helper: RequestHelper? { get set }
}

/// The user and groups of a requesting program.
package struct Caller: Sendable {
    package var uid: uid_t
    package var gid: gid_t

    /// The supplementary groups, if they were requested.
    package var groups: [gid_t]

    package init(uid: uid_t, gid: gid_t, groups: [gid_t] = []) {
        (self.uid, self.gid, self.groups) = (uid, gid, groups)
    }
}

/// The result of a lookup: a node, counted as one more lookup, and its attributes.
package struct NodeEntry {
    package var id: NodeID
    package var attributes: stat

    package init(id: NodeID, attributes: stat) { (self.id, self.attributes) = (id, attributes) }
}

package struct ListedEntry {
    package var name: [UInt8]
    /// The inode number and type (S_IFMT), or all attributes in a listing with attributes.
    package var attributes: stat
    /// The backing directory's offset of the next entry.
    package var nextOffset: Int64
    /// The node, in a listing with attributes. Counts as one lookup if `accept` returns true. Nil for `.` and `..`.
    package var id: NodeID?

    package init(name: [UInt8], attributes: stat, nextOffset: Int64) {
        (self.name, self.attributes, self.nextOffset) = (name, attributes, nextOffset)
    }

    /// - Parameter found: an entry of a backing directory.
    fileprivate init(_ found: DirectoryReader.Entry) {
        (name, nextOffset, attributes) = (found.name, found.nextOffset, stat())
        attributes.st_ino = ino_t(found.inode)
        attributes.st_mode = mode_t(found.type) << 12  // DTTOIF, readdir(3)
    }
}

/// The answers of a file system without background work, deferred opens and observers.
extension FileSystem {
    package func runInBackground() {}
    package func endDeferred() {}
    package func willEnd() {}
    package func failed(_ error: StoreError) {}
    package func setAttributeObserver(_ observer: @escaping @Sendable (UInt64) -> Void) {}
    package func setDamageObserver(_ observer: @escaping @Sendable (Damage) -> Void) {}
    package func path(of id: NodeID) -> ObjectPath? { nil }
    package func readAhead(_ handle: File, at plaintextOffset: UInt64, workspace: Workspace) -> UInt64? { nil }
}

extension FileSystem {

    /// Lists a backing directory, as `list` does. Returns true at its end.
    /// - Parameter complete: called with the backing directory and each of its entries, except `.` and `..`. Turns the
    ///   entry into the one for programs, or returns false to omit it.
    /// - Throws: `.system` with errno; the error of `complete`.
    @discardableResult
    package func list(
        _ reader: borrowing Mutex<DirectoryReader>, from offset: Int64, _ accept: (ListedEntry) -> Bool,
        complete: (Descriptor, Component, inout ListedEntry) throws(StoreError) -> Bool
    ) throws(StoreError) -> Bool {
        try reader.withLock { (reader) throws(StoreError) in
            try reader.seek(to: offset)
            while let found = try reader.nextWithDots() {
                var listed = ListedEntry(found)
                if let entry = try found.component(), try !complete(reader.directory, entry, &listed) { continue }
                if accept(listed) { continue }
                if let id = listed.id { forget(id, count: 1) }
                reader.putBack()
                return false
            }
            return true
        }
    }
}

/// Changes of attributes. Nil leaves an attribute as it is. A time's tv_nsec may be UTIME_NOW.
package struct AttributeChanges: Sendable {
    package var mode: mode_t?
    package var uid: uid_t?
    package var gid: gid_t?
    package var length: UInt64?
    package var accessTime, modificationTime: timespec?

    package init() {}
}

extension AttributeChanges {
    /// Applies all changes except the length.
    /// - Parameters:
    ///   - pinned: any descriptor of the object, also O_PATH.
    ///   - kind: S_IFMT of its mode.
    /// - Throws: `.system` with errno.
    package func apply(to pinned: Descriptor, kind: mode_t) throws(StoreError) {
        if uid != nil || gid != nil {
            try pinned.setOwner(uid ?? .max, gid ?? .max)
        }
        // Set the mode after the owner, because a change of owner clears the set-id bits.
        if let mode {
            if kind == S_IFLNK { throw .system(.notSupported) }
            // chmod(2) of the link in /proc works, but fchmod(2) refuses an O_PATH descriptor.
            let path = "/proc/self/fd/\(pinned.fd)"
            try retrying { chmod(path, mode & 0o7777) }
        }
        if accessTime != nil || modificationTime != nil {
            let omit = timespec(tv_sec: 0, tv_nsec: linux_UTIME_OMIT)
            try pinned.setTimes([accessTime ?? omit, modificationTime ?? omit])
        }
    }
}
