package import FileSystem
package import Glibc
package import LinuxSystem

/// A tree that files are copied from or to. Names are bytes, and no symbolic link in the tree is followed. Any thread.
///
/// A `Workspace` belongs to the calling thread. The defaults suit trees without authentication.
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
    /// True if the content is known to be whole on disk. A vault's files are, once they are sealed.
    func isSealed(_ item: Item, _ workspace: Workspace) throws(StoreError) -> Bool
    func seal(_ item: Item, _ workspace: Workspace) throws(StoreError)
    /// True if a kill can leave a file with other times than it was given, and without its set-id bits and
    /// capabilities. Sealing writes to the backing file and then puts them back.
    var mayLoseTimes: Bool { get }
    /// Bytes that are damaged together.
    var damageUnit: Int { get }
    /// False if `status` has a file's exact length only while the file is open: a view needs the file's key for it.
    var knowsLengths: Bool { get }
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
    /// True if the tree can go on inside a file that an interrupted transfer has begun.
    var canResume: Bool { get }
    /// Opens the unfinished file of this name, or makes it. Called only if `canResume`.
    /// - Throws: `damaged` if the file is not this user's alone, or if another process writes it.
    func resume(_ name: [UInt8], in directory: Item) throws(StoreError) -> (Item, Content)
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

extension TransferTree {
    package func authenticLength(of content: Content) -> UInt64 { .max }
    package func isSealed(_ item: Item, _ workspace: Workspace) throws(StoreError) -> Bool { true }
    package func seal(_ item: Item, _ workspace: Workspace) throws(StoreError) {}
    package var mayLoseTimes: Bool { false }
    package var damageUnit: Int { 4096 }
    package var knowsLengths: Bool { true }
    package func decryption(of content: Content) -> (description: String, sample: UInt64) { ("", 0) }
    package var canResume: Bool { false }
    package func resume(_ name: [UInt8], in directory: Item) throws(StoreError) -> (Item, Content) {
        try makeFile(name, in: directory)
    }
}

/// An object in the source that is being transferred.
struct SourceObject<Item: Sendable> {
    let item: Item
    /// Taken before any content was read.
    var status: stat
    /// At the destination.
    let name: [UInt8]
    /// Below the source.
    let path: [UInt8]

    var kind: mode_t { status.st_mode & S_IFMT }
}
