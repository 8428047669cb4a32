internal import CLinux
package import FileSystem
package import Glibc
internal import LinuxSystem
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
        case atWork(Shown)
        /// It has moved the backing ctime, in nanoseconds, from `since` to `moved`; at so many milliseconds of CLOCK_MONOTONIC.
        case done(Shown, since: Int, moved: Int, at: Int)

        var shown: Shown {
            switch self {
            case .atWork(let shown), .done(let shown, _, _, _): shown
            }
        }
    }

    /// What sealing changes.
    struct Shown {
        var mode: mode_t
        var modified: timespec
        var changed: timespec

        init(_ status: stat) {
            (mode, modified, changed) = (status.st_mode, status.st_mtim, status.st_ctim)
        }
    }

    /// True once the object is known to have no pack of attributes. The mutex is held while attributes are read or
    /// changed.
    let hasNoPack = Mutex(false)

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
                state.sealing = .atWork(Shown(Self.without(state.sealing, before)))
                return
            }
            state.sealing = .done(
                state.sealing?.shown ?? Shown(before), since: before.changedNanoseconds,
                moved: after.changedNanoseconds, at: monotonicMilliseconds())
        }
    }

    /// A stat of the backing file without what sealing did to it. That goes to the kernel, which keeps it for a while.
    func withoutSealing(_ status: stat) -> stat {
        Self.without(opening.withLock { $0.sealing }, status)
    }

    /// Milliseconds from a look at the backing file to what is made of it, at most.
    private static let answerTakes = 60_000

    private static func without(_ sealing: Sealing?, _ status: stat) -> stat {
        var result = status
        switch sealing {
        case .atWork(let shown):
            (result.st_mode, result.st_mtim, result.st_ctim) = (shown.mode, shown.modified, shown.changed)
        case .done(let shown, let since, let moved, let time):
            let changed = status.changedNanoseconds
            if changed == moved {
                // Its times may be newer all the same, by a clock that ticks.
                result.st_ctim = shown.changed
            } else if since < changed && changed < moved && monotonicMilliseconds() < time + answerTakes {
                // Asked while it was at work, and answered after. Not for ever: clocks are set back.
                (result.st_mode, result.st_mtim, result.st_ctim) = (shown.mode, shown.modified, shown.changed)
            }
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

extension stat {
    /// ctime, which the store's clock sets; what is beyond 2262 wraps.
    fileprivate var changedNanoseconds: Int { st_ctim.tv_sec &* 1_000_000_000 &+ st_ctim.tv_nsec }
}
