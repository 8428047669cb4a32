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

    /// What sealing does to the backing file's attributes: to programs it is no change.
    indirect enum Sealing {
        /// It is at work, and this is what they see.
        case atWork(stat)
        /// The ctime that it has moved, and what it was.
        case done(moved: timespec, shown: timespec)
    }

    /// Held while the file is opened, so that there is one `EncryptedFile` and no two.
    let opening = Mutex(OpenState())

    package required init(key: NodeKey, kind: mode_t) {
        directoryClass = kind == S_IFDIR ? DirectoryClass() : nil
        super.init(key: key, kind: kind)
    }

    /// As `EncryptedFile.onSealing`.
    func noteSealing(before: stat, after: stat?) {
        opening.withLock { state in
            guard let after else {
                state.sealing = .atWork(Self.without(state.sealing, before))
                return
            }
            let shown = if case .atWork(let seen) = state.sealing { seen.st_ctim } else { before.st_ctim }
            state.sealing = .done(moved: after.st_ctim, shown: shown)
        }
    }

    /// A stat of the backing file without what sealing did to it. That goes to the kernel, which keeps it for a while.
    func withoutSealing(_ status: stat) -> stat {
        Self.without(opening.withLock { $0.sealing }, status)
    }

    private static func without(_ sealing: Sealing?, _ status: stat) -> stat {
        var result = status
        switch sealing {
        case .atWork(let seen):
            (result.st_mode, result.st_mtim, result.st_ctim) = (seen.st_mode, seen.st_mtim, seen.st_ctim)
        case .done(let moved, let shown):
            let isMoved = moved.tv_sec == status.st_ctim.tv_sec && moved.tv_nsec == status.st_ctim.tv_nsec
            if isMoved { result.st_ctim = shown }
        case nil: break
        }
        return result
    }

    /// The class, once it has been authenticated: the kernel tells by nodes what it asks for.
    var protectionClass: ProtectionClass? {
        get { ProtectionClass(rawValue: knownClass.load(ordering: .acquiring)) }
        set { knownClass.store(newValue?.rawValue ?? 0, ordering: .releasing) }
    }

    /// The file, where it is open.
    var openFile: EncryptedFile? { opening.withLock { $0.file } }
}
