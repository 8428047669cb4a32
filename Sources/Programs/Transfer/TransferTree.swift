package import FileSystem
package import Glibc
package import LinuxSystem

/// A tree that files are copied from or to. Names are bytes, and no symbolic link in the tree is followed. Any thread.
///
/// A `Workspace` belongs to the calling thread. Each function throws the error of the system call that it stands for, and
/// `.damaged` for what does not authenticate.
package protocol TransferTree: Sendable {
    /// An object in the tree. It stays the same object if its name goes or changes.
    associatedtype Item: Sendable
    /// A directory being listed. One thread.
    associatedtype Listing
    /// An open regular file. One thread.
    associatedtype Content
    associatedtype Workspace: WorkerBuffers

    // MARK: Reading

    /// Returns nil if nothing has this name.
    func find(_ name: [UInt8], in directory: Item) throws(StoreError) -> Item?
    /// fstat(2).
    func status(of item: Item) throws(StoreError) -> stat
    func list(_ directory: Item) throws(StoreError) -> Listing
    /// Returns the next name except `.` and `..`, or nil at the end.
    func next(_ listing: inout Listing) throws(StoreError) -> [UInt8]?
    /// readlink(2).
    func linkTarget(of item: Item) throws(StoreError) -> [UInt8]
    /// listxattr(2). May throw `ENOTSUP`.
    func attributeNames(of item: Item) throws(StoreError) -> [[UInt8]]
    func attribute(_ name: [UInt8], of item: Item) throws(StoreError) -> [UInt8]
    /// Opens a regular file for reading.
    func open(_ item: Item, _ workspace: Workspace) throws(StoreError) -> Content
    /// In bytes.
    func length(of content: Content) throws(StoreError) -> UInt64
    /// The offset from which reads fail because a sealed length ends there. `.max` if no length is exceeded.
    func authenticLength(of content: Content) -> UInt64
    /// Returns the first run of data at or after an offset, or nil if only a hole is left. The run may end beyond the
    /// file.
    func data(in content: Content, from offset: UInt64) throws(StoreError) -> Range<UInt64>?
    /// Returns fewer bytes than asked for only at the end.
    func read(
        _ content: Content, at offset: UInt64, into buffer: UnsafeMutableRawBufferPointer, _ workspace: Workspace
    ) throws(StoreError) -> Int
    /// Drops the file's clean pages from the kernel's cache, so that the next read comes from the disk.
    func forgetCached(_ content: Content)
    /// True for a vault, whose files are whole on disk once they are sealed. A kill during a seal can leave a file with
    /// other times than it was given, and without its set-id bits and capabilities, because sealing writes to the
    /// backing file and then puts them back.
    var sealsFiles: Bool { get }
    func isSealed(_ item: Item, _ workspace: Workspace) throws(StoreError) -> Bool
    func seal(_ item: Item, _ workspace: Workspace) throws(StoreError)
    /// Bytes that are damaged together.
    var damageUnit: Int { get }
    /// How the content is decrypted, without the keys, and the offset of a place that shows a difference in that.
    func decryption(of content: Content) -> (description: String, sample: UInt64)

    // MARK: Changing

    /// Makes a directory with mode 0700.
    func makeDirectory(_ name: [UInt8], in directory: Item) throws(StoreError) -> Item
    func makeLink(_ name: [UInt8], to target: [UInt8], in directory: Item) throws(StoreError) -> Item
    /// Makes a fifo, socket or device: mknod(2).
    func makeNode(_ name: [UInt8], like status: stat, in directory: Item) throws(StoreError) -> Item
    /// Makes an empty file with mode 0600.
    func makeFile(_ name: [UInt8], in directory: Item) throws(StoreError) -> (Item, Content)
    /// Opens the unfinished file of this name that an interrupted transfer has begun, or makes it.
    /// - Throws: in a directory `damaged` if the file is not this user's alone, or if another process writes it. In a vault such
    ///   a file is removed.
    func resume(_ name: [UInt8], in directory: Item, _ workspace: Workspace) throws(StoreError) -> (Item, Content)
    /// link(2).
    func link(_ item: Item, as name: [UInt8], in directory: Item) throws(StoreError)
    func write(
        _ bytes: UnsafeRawBufferPointer, to content: Content, at offset: UInt64, _ workspace: Workspace
    ) throws(StoreError)
    /// ftruncate(2).
    func setLength(_ length: UInt64, of content: Content, _ workspace: Workspace) throws(StoreError)
    /// fsync(2).
    func synchronize(_ content: Content) throws(StoreError)
    func change(_ item: Item, _ changes: AttributeChanges, _ workspace: Workspace) throws(StoreError)
    func setAttribute(_ name: [UInt8], _ value: [UInt8], of item: Item) throws(StoreError)
    func removeAttribute(_ name: [UInt8], of item: Item) throws(StoreError)
    /// rename(2) within a directory.
    /// - Throws: `EEXIST` if `isReplacing` is false and something has the new name.
    func rename(_ name: [UInt8], to newName: [UInt8], in directory: Item, isReplacing: Bool) throws(StoreError)
    /// unlink(2).
    func remove(_ name: [UInt8], in directory: Item) throws(StoreError)
    /// True if an object with a temporary name was left by a transfer that has ended.
    func isStale(_ item: Item) -> Bool
}
