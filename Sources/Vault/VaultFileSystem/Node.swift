package import FileSystem
package import Glibc
package import LinuxSystem
internal import Synchronization
internal import VaultFormat
internal import VaultStore

/// A file, directory, link or special file of a vault that the kernel knows. Any thread.
package final class Node: TableNode, @unchecked Sendable {
    // @unchecked: as TableNode. The properties added here are immutable, atomic or under a mutex.
    private enum Origin: UInt8, AtomicRepresentable {
        case unknown, own, conflictCopy
    }

    private let origin = Atomic(Origin.unknown)

    /// True for a conflict copy, and for everything in a directory that is one (FileFormat, Store-40).
    var isConflictCopy: Bool { origin.load(ordering: .relaxed) == .conflictCopy }

    /// True if a sync client may have given the file the name of a conflict copy while it was open.
    let hasCopyName = Atomic<Bool>(false)

    /// True after a change by a path that the kernel may remember although the client has taken the name away.
    let wasStale = Atomic<Bool>(false)

    /// True from the making of a file to its last close.
    let isBeingMade = Atomic<Bool>(false)

    /// Sets `isConflictCopy`. Returns false if it already has the other value.
    func setConflictCopy(_ isConflictCopy: Bool) -> Bool {
        let value: Origin = isConflictCopy ? .conflictCopy : .own
        let (wasUnknown, old) = origin.compareExchange(expected: .unknown, desired: value, ordering: .relaxed)
        return wasUnknown || old == value
    }

    /// A directory's class, shared by all who have it open.
    let directoryClass: DirectoryClass?

    /// Raw value of the authenticated class. 0 before that.
    private let knownClass = Atomic<UInt8>(0)

    struct OpenState {
        /// The file while a handle or the sealer has it open. They share one object.
        weak var file: EncryptedFile?
        /// The file id of the first open. A file with another id is not this node.
        var fileID: UInt64?
        /// Indirect, because most nodes have none.
        var sealing: Sealing?
        /// Set for a directory that was removed while it may be in use.
        var removedDirectory: OpenDirectory?
    }

    /// Hides the effect of sealing on the backing file's attributes from programs.
    indirect enum Sealing {
        /// Sealing is in progress. Programs see these attributes.
        case running(Shown)
        /// Sealing has changed the backing ctime from `since` to `moved`, in nanoseconds, at `at`, in milliseconds of
        /// CLOCK_MONOTONIC.
        case done(Shown, since: Int, moved: Int, at: Int)

        var shown: Shown {
            switch self {
            case .running(let shown), .done(let shown, _, _, _): shown
            }
        }
    }

    /// The attributes that sealing changes.
    struct Shown {
        var mode: mode_t
        var modified, changed: timespec

        init(_ status: stat) { (mode, modified, changed) = (status.st_mode, status.st_mtim, status.st_ctim) }
    }

    /// Facts about the object's extended attributes that need no look at the store.
    struct KnownAttributes {
        enum Others: UInt8 {
            case unknown, none, some
        }

        /// True if it has no pack of `user.*` attributes.
        var hasNoPack = false
        /// Attributes outside `user.*`.
        var others = Others.unknown
    }

    /// The mutex is held while attributes are read or changed. A rename waits for it (`forgetAttributes`).
    let attributes = Mutex(KnownAttributes())

    /// Held while the file is opened, so that there is only one `EncryptedFile`.
    let opening = Mutex(OpenState())

    package required init(key: FileIdentity, kind: mode_t) {
        directoryClass = kind == S_IFDIR ? DirectoryClass() : nil
        super.init(key: key, kind: kind)
    }

    /// For `EncryptedFile.onHiddenWrite`.
    func updateSealing(before: stat, after: stat?) {
        opening.withLock { state in
            guard let after else {
                state.sealing = .running(Shown(Self.without(state.sealing, before)))
                return
            }
            state.sealing = .done(
                state.sealing?.shown ?? Shown(before), since: before.changedNanoseconds,
                moved: after.changedNanoseconds, at: monotonicMilliseconds())
        }
    }

    /// The backing file's attributes without the effect of sealing. The kernel caches them for a while.
    func withoutSealing(_ status: stat) -> stat { Self.without(opening.withLock { $0.sealing }, status) }

    /// Maximum time, in milliseconds, from a stat of the backing file to the use of its result.
    private static let maximumStatAge = 60_000

    private static func without(_ sealing: Sealing?, _ status: stat) -> stat {
        var result = status
        switch sealing {
        case .running(let shown):
            (result.st_mode, result.st_mtim, result.st_ctim) = (shown.mode, shown.modified, shown.changed)
        case .done(let shown, let since, let moved, let time):
            let changed = status.changedNanoseconds
            if changed == moved {
                // The file's times may still be newer, because the clock ticks.
                result.st_ctim = shown.changed
            } else if since < changed && changed < moved && monotonicMilliseconds() < time + maximumStatAge {
                // The stat was taken during the sealing. The limit is needed because clocks can be set back.
                (result.st_mode, result.st_mtim, result.st_ctim) = (shown.mode, shown.modified, shown.changed)
            }
        case nil: break
        }
        return result
    }

    /// The authenticated class. Nil before that.
    var protectionClass: ProtectionClass? {
        get { ProtectionClass(rawValue: knownClass.load(ordering: .acquiring)) }
        set { knownClass.store(newValue?.rawValue ?? 0, ordering: .releasing) }
    }

    /// True since the file was cut without the kernel's knowledge, until the kernel is asked to look it up again.
    let isOutdated = Atomic<Bool>(false)

    /// For a name that now leads to another object. Whoever has looked by that name has finished.
    func forgetAttributes() { attributes.withLock { $0.others = .unknown } }

    var openFile: EncryptedFile? { opening.withLock { $0.file } }
}

extension stat {
    /// ctime in nanoseconds. Times after 2262 wrap.
    fileprivate var changedNanoseconds: Int { st_ctim.tv_sec &* 1_000_000_000 &+ st_ctim.tv_nsec }
}
