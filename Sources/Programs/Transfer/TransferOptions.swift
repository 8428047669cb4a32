package import Glibc
package import LinuxSystem

/// Options of a transfer. By default it copies the objects that are missing at the destination.
package struct TransferOptions: Sendable {
    /// Replaces files that differ.
    package var isReplacing = false
    /// Compares the contents of existing files whose size and time are right.
    package var comparesContents = false
    /// Writes what verifies of a damaged file. The rest becomes a hole.
    package var savesDamaged = false
    /// Does not copy what gives rights of others: set-user-ID and set-group-ID bits of files, file capabilities
    /// (capabilities(7)), device nodes.
    package var dropsSpecial = false
    /// Copies belong to this user, whoever the source belongs to.
    package var dropsOwners = false
    /// For a view, which knows only contents, names and times, and a file's exact length only while the file is open.
    /// Copies are for this user alone, other kinds of objects are failures, and samples of existing files are compared,
    /// because nothing authenticates them.
    package var contentsOnly = false
    /// Writes nothing. Compares the destination with the source.
    package var isComparing = false
    /// The time (CLOCK_REALTIME_COARSE) at which the copying began whose result is compared. A file that changed since
    /// then and differs from its source was copied wrong, and is removed. Any other file is not ours, and stays.
    package var copiedSince: timespec?
    /// A directory that is neither transferred nor written to: the vault, if it lies in the source or the destination.
    package var leftOut: FileIdentity?
    /// A file longer than this can be resumed inside it, at a multiple of this. In bytes. Less work is repeated with a
    /// small interval, and the disk is waited for less often with a large one.
    package var resumeInterval: UInt64 = 256 << 20

    package init() {}

    /// Call when copying begins.
    package mutating func beginCopying() {
        var now = timespec()
        // The kernel stamps files with this clock (current_time in fs/inode.c).
        clock_gettime(CLOCK_REALTIME_COARSE, &now)
        copiedSince = now
    }

    /// True if a copy has its source's type, size and time. A file system without fractions of a second may be a second
    /// off. For a view two seconds may be, because samples are compared too.
    func isSame(_ copy: stat, _ source: stat) -> Bool {
        copy.st_mode & S_IFMT == source.st_mode & S_IFMT && hasSameTime(copy, source)
            && (source.st_mode & S_IFMT != S_IFREG || copy.st_size == source.st_size)
    }

    func hasSameTime(_ copy: stat, _ source: stat) -> Bool {
        let (one, other) = (copy.st_mtim, source.st_mtim)
        let distance = (one.tv_sec &- other.tv_sec).magnitude
        if contentsOnly { return distance <= 2 }
        return one.tv_nsec == other.tv_nsec ? distance == 0 : one.tv_nsec == 0 && distance <= 1
    }
}
