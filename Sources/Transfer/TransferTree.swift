package import FileSystem
package import Glibc
package import LinuxSystem
package import VaultStore

/// A tree that files are copied from or to: real files, or those of a vault. Names are bytes, and no link in it is
/// followed. Any thread.
///
/// A `Workspace` is the calling thread's own.
package protocol TransferTree: Sendable {
    /// Something in the tree, held on to as long as this is kept, whatever becomes of its name.
    associatedtype Item: Sendable
    /// A directory being listed. One thread.
    associatedtype Listing
    /// A regular file that is open. One thread.
    associatedtype Content

    // MARK: Reading

    /// Nil where nothing has this name.
    func find(_ name: [UInt8], in directory: Item) throws(StoreError) -> Item?
    /// fstat(2).
    func status(of item: Item) throws(StoreError) -> stat
    func list(_ directory: Item) throws(StoreError) -> Listing
    /// The next name but `.` and `..`; nil at the end.
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
    /// The first run of data at or after an offset; nil where only a hole is left. It may end beyond the file.
    func data(in content: Content, from offset: UInt64) throws(StoreError) -> Range<UInt64>?
    /// Fewer bytes than asked for only at the end.
    func read(
        _ content: Content, at offset: UInt64, into buffer: UnsafeMutableRawBufferPointer, _ workspace: Workspace
    ) throws(StoreError) -> Int
    /// Lets go of what the kernel has of it in memory, which is on disk too: what is read next comes from there.
    func forgetCached(_ content: Content)
    /// Whether the content is known to be whole on disk: a vault says so of files that are sealed.
    func isVouchedFor(_ item: Item, _ workspace: Workspace) throws(StoreError) -> Bool
    /// Lets it be vouched for, once it is on disk.
    func vouch(for item: Item, _ workspace: Workspace) throws(StoreError)
    /// Whether a kill may leave a file that is there with other times than it was given, and without what lets it act as its
    /// owner: a seal writes to it, and puts them back.
    var mayLoseTimes: Bool { get }
    /// How many bytes are damaged together.
    var damageUnit: Int { get }

    // MARK: Changing

    /// A new directory for this user alone.
    func makeDirectory(_ name: [UInt8], in directory: Item) throws(StoreError) -> Item
    func makeLink(_ name: [UInt8], to target: [UInt8], in directory: Item) throws(StoreError) -> Item
    /// A fifo, socket or device: mknod(2).
    func makeNode(_ name: [UInt8], like status: stat, in directory: Item) throws(StoreError) -> Item
    /// A new, empty file for this user alone.
    func makeFile(_ name: [UInt8], in directory: Item) throws(StoreError) -> (Item, Content)
    /// link(2).
    func link(_ item: Item, as name: [UInt8], in directory: Item) throws(StoreError)
    func write(
        _ bytes: UnsafeRawBufferPointer, to content: Content, at offset: UInt64, _ workspace: Workspace
    ) throws(StoreError)
    /// ftruncate(2).
    func setLength(_ length: UInt64, of content: Content, _ workspace: Workspace) throws(StoreError)
    func change(_ item: Item, _ changes: AttributeChanges, _ workspace: Workspace) throws(StoreError)
    func setAttribute(_ name: [UInt8], _ value: [UInt8], of item: Item) throws(StoreError)
    func removeAttribute(_ name: [UInt8], of item: Item) throws(StoreError)
    /// rename(2) within a directory.
    /// - Throws: `EEXIST` where `isReplacing` is false and something has the new name.
    func rename(_ name: [UInt8], to newName: [UInt8], in directory: Item, isReplacing: Bool) throws(StoreError)
    /// unlink(2).
    func remove(_ name: [UInt8], in directory: Item) throws(StoreError)
    /// Whether something with a name of ours was left by a transfer that has ended.
    func isStale(_ item: Item) -> Bool
}
