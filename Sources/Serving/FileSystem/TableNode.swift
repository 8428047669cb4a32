public import Glibc
public import LinuxSystem

/// A file, directory, link or special file known to the kernel. Each kind of file system has its own subclass. The
/// class is open, because only an open class can be inherited from in another module.
open class TableNode: @unchecked Sendable {
    // @unchecked: `names`, `references`, `isLeaving` and `isDetached` are used only under the node table's mutex.
    package final let key: FileIdentity
    /// S_IFMT of the mode, which never changes.
    package final let kind: mode_t
    /// The kernel's id of the node. The table sets it once, before it returns the node.
    final var id: UInt64 = 0
    /// True once the node is separated from its inode: its last name was removed, or the number is another object's.
    package final internal(set) var isDetached = false
    /// True while the node's last name is being removed.
    final var isLeaving = false
    /// All known names. A hard link has several, and so has a file renamed by another process.
    final var names = NodeNames()
    /// The number of the kernel's lookups, plus the names whose parent is this node.
    final var references = 0

    public required init(key: FileIdentity, kind: mode_t) { (self.key, self.kind) = (key, kind) }

    package final var isDirectory: Bool { kind == S_IFDIR }
    package final var isRegularFile: Bool { kind == S_IFREG }
}

/// One name of a node: its directory and its entry there.
package struct NodeName<Item: AnyObject> {
    package var parent: Item
    package var entry: Component

    package init(parent: Item, entry: Component) { (self.parent, self.entry) = (parent, entry) }
}

/// The kernel's number of a node. 1 is the root (FUSE_ROOT_ID).
package struct NodeID: Equatable, Sendable {
    package static let root = NodeID(1)
    package let rawValue: UInt64

    package init(_ rawValue: UInt64) { self.rawValue = rawValue }
}
