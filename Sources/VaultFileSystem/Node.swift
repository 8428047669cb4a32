internal import BackingStore
internal import CLinux
internal import Glibc
internal import Synchronization
internal import SystemPackage
internal import VaultFormat
internal import VaultStore

/// What a backing inode is known by while it has a name: ext4 gives a number to a new file as soon as it is free.
struct NodeKey: Hashable {
    var device: dev_t
    var inode: ino_t

    init(_ status: stat) {
        device = status.st_dev
        inode = status.st_ino
    }
}

/// One name of a node: an entry of the directory that another node is.
struct NodeName {
    var parent: Node
    var entry: [UInt8]
}

/// A file, directory, link or special file that the kernel knows. Its number for the kernel is its address, which is
/// not used again before the kernel has forgotten it.
package final class Node: @unchecked Sendable {
    // @unchecked: `names`, `references` and `isDetached` are touched only under the node table's mutex.
    let key: NodeKey
    /// S_IFMT of the mode: what the object is never changes.
    let kind: mode_t
    /// Of a directory: its class, one for all that have it open.
    let directoryClass: DirectoryClass?
    /// All known names; a hard link has several.
    var names: [NodeName] = []
    /// The kernel's lookups, and the names in which this node is the parent.
    var references = 0
    /// Out of the table: its last name is gone, its inode number may belong to another.
    var isDetached = false

    /// Raw value of the class that was authenticated, 0 before.
    private let knownClass = Atomic<UInt8>(0)

    struct OpenState {
        /// The file while a handle or the sealer holds it: all share one.
        weak var file: EncryptedFile?
        /// What the first opening found in the header: another file put in its place is not this node.
        var fileID: UInt64?
        /// The ctime that sealing moved, and what it was: to programs, sealing is no change.
        var sealing: (moved: timespec, shown: timespec)?
        /// Of a directory that was removed while somebody was in it.
        var removedDirectory: OpenDirectory?
    }

    /// Held while the file is opened, so that there is one `EncryptedFile` and no two.
    let opening = Mutex(OpenState())

    init(key: NodeKey, kind: mode_t) {
        self.key = key
        self.kind = kind
        directoryClass = kind == S_IFDIR ? DirectoryClass() : nil
    }

    var isDirectory: Bool { kind == S_IFDIR }
    var isRegularFile: Bool { kind == S_IFREG }

    /// Remembers that sealing has moved the backing file's ctime.
    func wasSealed(before: stat, after: stat) {
        let shown = shownChangeTime(of: before)
        opening.withLock { $0.sealing = (moved: after.st_ctim, shown: shown) }
    }

    /// ctime without what sealing did to it.
    func shownChangeTime(of status: stat) -> timespec {
        guard let sealing = opening.withLock({ $0.sealing }), sealing.moved.tv_sec == status.st_ctim.tv_sec,
            sealing.moved.tv_nsec == status.st_ctim.tv_nsec
        else { return status.st_ctim }
        return sealing.shown
    }

    /// The class, once it has been authenticated: the kernel tells by nodes what it asks for.
    var protectionClass: ProtectionClass? {
        get { ProtectionClass(rawValue: knownClass.load(ordering: .acquiring)) }
        set { knownClass.store(newValue?.rawValue ?? 0, ordering: .releasing) }
    }

    /// The file, where it is open.
    var openFile: EncryptedFile? { opening.withLock { $0.file } }
}

/// The number by which the kernel calls a node: 1 is the root, as FUSE has it.
package struct NodeID: Equatable, Sendable {
    package static let root = NodeID(rawValue: 1)
    package let rawValue: UInt64

    package init(rawValue: UInt64) {
        self.rawValue = rawValue
    }
}
