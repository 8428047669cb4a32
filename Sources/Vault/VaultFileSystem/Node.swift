package import FileSystem
package import Glibc
package import LinuxSystem
internal import Synchronization
internal import VaultFormat
internal import VaultStore

/// A file, directory, link or special file of a vault, known to the kernel. Any thread.
package final class Node: TableNode, @unchecked Sendable {
    // @unchecked: as TableNode. The properties added here are immutable, atomic or under a mutex.
    private enum Origin: UInt8, AtomicRepresentable {
        case unknown, own, conflictCopy
    }

    private let origin = Atomic(Origin.unknown)

    /// True for a conflict copy, and for everything in the conflict copy of a directory (FileFormat, Store-40).
    var isConflictCopy: Bool { origin.load(ordering: .relaxed) == .conflictCopy }

    /// True if a sync client may have renamed the open file to the name of a conflict copy.
    let hasCopyName = Atomic<Bool>(false)

    /// True after a change was refused with `ESTALE`, until the next one. The kernel may have used an outdated name.
    let wasStale = Atomic<Bool>(false)

    /// True from the creation of a file to its last close.
    let isBeingMade = Atomic<Bool>(false)

    /// Sets `isConflictCopy`. Returns false if it already has the other value.
    func setConflictCopy(_ isConflictCopy: Bool) -> Bool {
        let value: Origin = isConflictCopy ? .conflictCopy : .own
        let (wasUnknown, old) = origin.compareExchange(expected: .unknown, desired: value, ordering: .relaxed)
        return wasUnknown || old == value
    }

    /// A directory's class, shared by all its openings.
    let directoryClass: DirectoryClass?

    /// Raw value of the authenticated class. 0 before the authentication.
    private let knownClass = Atomic<UInt8>(0)

    struct OpenState {
        /// The file while a handle or the sealer has it open. They share one object.
        weak var file: EncryptedFile?
        /// The file id of the first open. A file with another id is not this node.
        var fileID: UInt64?
        /// Indirect to save memory, because most nodes have none.
        var sealing: Sealing?
        /// The open directory, if it was removed while programs may still use it.
        var removedDirectory: OpenDirectory?
    }

    /// Hides the effect of sealing on the backing file's attributes from programs.
    indirect enum Sealing {
        /// Sealing has changed the backing ctime from `since` to `moved`, in nanoseconds, or is in progress, and these
        /// are before and after every time. A stat from during the sealing is used before `end` only, in milliseconds
        /// of CLOCK_MONOTONIC, because clocks can be set back.
        case hiding(Shown, since: Int, moved: Int, end: Int)
    }

    struct Shown {
        var mode: mode_t
        var modified, changed: timespec

        init(_ status: stat) { (mode, modified, changed) = (status.st_mode, status.st_mtim, status.st_ctim) }
    }

    /// Known facts about the object's extended attributes, which save a look at the store.
    struct KnownAttributes {
        /// True if the object has no pack of `user.*` attributes.
        var hasNoPack = false
        /// True if the object has attributes outside `user.*`. Nil if unknown.
        var hasOthers: Bool?
    }

    /// The mutex is held while attributes are read or changed. A rename waits for it (`forgetAttributes`).
    let attributes = Mutex(KnownAttributes())

    /// Held while a thread opens the file, so that there is only one `EncryptedFile`.
    let opening = Mutex(OpenState())

    package required init(key: FileIdentity, kind: mode_t) {
        directoryClass = kind == S_IFDIR ? DirectoryClass() : nil
        super.init(key: key, kind: kind)
    }

    /// Updates `OpenState.sealing`. Called by `BackingAttributes.onHiddenWrite`.
    func updateSealing(before: stat, after: stat?) {
        opening.withLock { state in
            // While it is in progress, `without` returns what programs saw before.
            let shown = Shown(Self.without(state.sealing, before))
            guard let after else {
                state.sealing = .hiding(shown, since: .min, moved: .max, end: .max)
                return
            }
            state.sealing = .hiding(
                shown, since: before.changedNanoseconds, moved: after.changedNanoseconds,
                end: monotonicMilliseconds() + Self.maximumStatAge)
        }
    }

    /// Returns the backing file's attributes without the effect of sealing. The kernel caches them for a while.
    func withoutSealing(_ status: stat) -> stat { Self.without(opening.withLock { $0.sealing }, status) }

    /// Maximum time, in milliseconds, from a stat of the backing file to the use of its result.
    private static let maximumStatAge = 60_000

    private static func without(_ sealing: Sealing?, _ status: stat) -> stat {
        guard case .hiding(let shown, let since, let moved, let end) = sealing else { return status }
        var result = status
        let changed = status.changedNanoseconds
        if changed == moved {
            // Restore only ctime, because a write in the same tick of the clock may have renewed mtime.
            result.st_ctim = shown.changed
        } else if since < changed && changed < moved && monotonicMilliseconds() < end {
            (result.st_mode, result.st_mtim, result.st_ctim) = (shown.mode, shown.modified, shown.changed)
        }
        return result
    }

    /// The authenticated class, or nil before the authentication.
    var protectionClass: ProtectionClass? {
        get { ProtectionClass(rawValue: knownClass.load(ordering: .acquiring)) }
        set { knownClass.store(newValue?.rawValue ?? 0, ordering: .releasing) }
    }

    /// True after the daemon has cut the file, until the next open makes the kernel look up the new size.
    let isOutdated = Atomic<Bool>(false)

    /// Forgets what was read through a name that now leads to another object, after waiting for threads that read it.
    func forgetAttributes() { attributes.withLock { $0.hasOthers = nil } }

    var openFile: EncryptedFile? { opening.withLock { $0.file } }
}

extension stat {
    /// ctime in nanoseconds. Times after 2262 wrap.
    fileprivate var changedNanoseconds: Int { st_ctim.tv_sec &* 1_000_000_000 &+ st_ctim.tv_nsec }
}
