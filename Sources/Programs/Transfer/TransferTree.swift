package import FileSystem
package import Glibc
package import LinuxSystem

/// A tree from which or to which files are copied. Names are bytes. Links in the tree are never followed. Any thread.
///
/// A `Workspace` belongs to the calling thread. Each function throws the error of the system call for which it stands,
/// and `.damaged` for unauthentic data.
package protocol TransferTree: Sendable {
    /// An object in the tree. It stays the same object when its name is changed or removed.
    associatedtype Item: Sendable
    /// A directory being listed. One thread.
    associatedtype Listing
    /// An open regular file. One thread.
    associatedtype Content
    associatedtype Workspace: WorkerBuffers

    // MARK: Reading

    /// Returns nil if nothing has this name.
    func find(_ name: [UInt8], in directory: Item) throws(StoreError) -> Item?
    /// Returns the attributes, as fstat(2).
    func status(of item: Item) throws(StoreError) -> stat
    func list(_ directory: Item) throws(StoreError) -> Listing
    /// Returns the next name except `.` and `..`, or nil at the end.
    func next(_ listing: inout Listing) throws(StoreError) -> [UInt8]?
    /// Returns the target of a symbolic link, as readlink(2).
    func linkTarget(of item: Item) throws(StoreError) -> [UInt8]
    /// Returns the names of all extended attributes, as listxattr(2). May throw `ENOTSUP`.
    func attributeNames(of item: Item) throws(StoreError) -> [[UInt8]]
    func attribute(_ name: [UInt8], of item: Item) throws(StoreError) -> [UInt8]
    func open(_ item: Item, _ workspace: Workspace) throws(StoreError) -> Content
    func length(of content: Content) throws(StoreError) -> UInt64
    /// Returns the sealed length if the content goes past it, where reads fail. `.max` for any other content.
    func authenticLength(of content: Content) -> UInt64
    /// Returns the first run of data at or after an offset, which may pass the file's end. Nil if only a hole is left.
    func data(in content: Content, from offset: UInt64) throws(StoreError) -> Range<UInt64>?
    /// Returns fewer bytes than asked for only at the end.
    func read(
        _ content: Content, at offset: UInt64, into buffer: UnsafeMutableRawBufferPointer, _ workspace: Workspace
    ) throws(StoreError) -> Int
    /// Drops the file's clean pages from the kernel's cache, so the next read comes from the disk.
    func forgetCached(_ content: Content)
    /// True for a vault, whose files are whole on disk once they are sealed. Sealing writes to the backing file, and
    /// then restores its times, set-id bits and capabilities. A kill between the two leaves them changed or lost.
    var sealsFiles: Bool { get }
    func isSealed(_ item: Item, _ workspace: Workspace) throws(StoreError) -> Bool
    func seal(_ item: Item, _ workspace: Workspace) throws(StoreError)
    /// Number of bytes that one damaged place makes unreadable: a chunk, or a page.
    var damageUnit: Int { get }
    /// Returns a description of the decryption, without the keys, and an offset at which a different decryption shows.
    func decryption(of content: Content) -> (description: String, sample: UInt64)

    // MARK: Changing

    /// Makes an object other than a file or a hard link.
    func make(_ name: [UInt8], _ object: NewObject, in directory: Item) throws(StoreError) -> Item
    /// Makes an empty file with mode 0600.
    func makeFile(_ name: [UInt8], in directory: Item) throws(StoreError) -> (Item, Content)
    /// Opens the unfinished file of this name, begun by an interrupted transfer, or makes it.
    /// - Throws: in a directory, `damaged` if the file does not belong to this user alone, or if another process is
    ///   writing it. In a vault such a file is removed instead.
    func resume(_ name: [UInt8], in directory: Item, _ workspace: Workspace) throws(StoreError) -> (Item, Content)
    /// Adds a name, as link(2).
    func link(_ item: Item, as name: [UInt8], in directory: Item) throws(StoreError)
    func write(
        _ bytes: UnsafeRawBufferPointer, to content: Content, at offset: UInt64, _ workspace: Workspace
    ) throws(StoreError)
    /// Changes the length, as ftruncate(2).
    func setLength(_ length: UInt64, of content: Content, _ workspace: Workspace) throws(StoreError)
    /// Waits until the content is on disk, as fsync(2).
    func synchronize(_ content: Content) throws(StoreError)
    func change(_ item: Item, _ changes: AttributeChanges, _ workspace: Workspace) throws(StoreError)
    /// Sets an extended attribute, or removes it without a value.
    func setAttribute(_ name: [UInt8], _ value: [UInt8]?, of item: Item) throws(StoreError)
    /// Renames an object within a directory, as rename(2).
    /// - Throws: `EEXIST` if `isReplacing` is false and something has the new name.
    func rename(_ name: [UInt8], to newName: [UInt8], in directory: Item, isReplacing: Bool) throws(StoreError)
    /// Removes a name, as unlink(2).
    func remove(_ name: [UInt8], in directory: Item) throws(StoreError)
    /// Returns true if an ended transfer has left this object with a temporary name.
    func isStale(_ item: Item) -> Bool
}
