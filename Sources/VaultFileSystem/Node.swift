internal import BackingStore
internal import CLinux
package import Glibc
package import MountedFileSystem
internal import Synchronization
internal import SystemPackage
internal import VaultFormat
internal import VaultStore

/// A file, directory, link or special file of a vault that the kernel knows. Any thread.
package final class Node: TableNode, @unchecked Sendable {
    // @unchecked: as TableNode; what is added here is immutable, atomic or under a mutex.
    /// Of a directory: its class, one for all that have it open.
    let directoryClass: DirectoryClass?

    /// Raw value of the class that was authenticated, 0 before.
    private let knownClass = Atomic<UInt8>(0)

    struct OpenState {
        /// The file while a handle or the sealer holds it: all share one.
        weak var file: EncryptedFile?
        /// What the first opening found in the header: another file put in its place is not this node.
        var fileID: UInt64?
        /// Of its own, as most nodes have none.
        var sealing: Sealing?
        /// Of a directory that was removed while somebody was in it.
        var removedDirectory: OpenDirectory?
    }

    /// The ctime that sealing moved, and what it was: to programs, sealing is no change.
    final class Sealing: Sendable {
        let moved: timespec
        let shown: timespec

        init(moved: timespec, shown: timespec) {
            self.moved = moved
            self.shown = shown
        }
    }

    /// Held while the file is opened, so that there is one `EncryptedFile` and no two.
    let opening = Mutex(OpenState())

    package required init(key: NodeKey, kind: mode_t) {
        directoryClass = kind == S_IFDIR ? DirectoryClass() : nil
        super.init(key: key, kind: kind)
    }

    /// Remembers that sealing has moved the backing file's ctime.
    func wasSealed(before: stat, after: stat) {
        let shown = shownChangeTime(of: before)
        opening.withLock { $0.sealing = Sealing(moved: after.st_ctim, shown: shown) }
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
