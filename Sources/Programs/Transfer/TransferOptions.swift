package import Glibc
package import LinuxSystem

/// Options of a transfer. By default it copies the objects that are missing at the destination.
package struct TransferOptions: Sendable {
    /// Replaces existing files that differ from their sources.
    package var isReplacing = false
    /// Compares the contents even of existing files with the right size and time.
    package var comparesContents = false
    /// Writes the verified parts of a damaged file, and leaves holes for the rest.
    package var savesDamaged = false
    /// Leaves out everything that gives rights of others: set-user-ID and set-group-ID bits of files, file capabilities
    /// (capabilities(7)), device nodes.
    package var dropsSpecial = false
    /// Makes all copies belong to the user who runs the transfer.
    package var dropsOwners = false
    /// For a view, which knows only contents, names and times, and a file's exact length only while the file is open.
    /// Copies are for this user alone, other kinds of objects are failures, and existing files are compared by samples,
    /// because nothing authenticates them.
    package var contentsOnly = false
    /// Compares the destination with the source, and writes nothing.
    package var isComparing = false
    /// The time (CLOCK_REALTIME_COARSE) at which the copying began whose result is compared. If a file changed since
    /// then and differs from its source, the transfer copied it wrong, so it is removed. Older files stay.
    package var copiedSince: timespec?
    /// A directory left out of the transfer, on both sides: the vault, if it lies in the source or the destination.
    package var leftOut: FileIdentity?
    /// Length, in bytes, above which a file can be resumed inside, at a multiple of this. A small interval repeats less
    /// work after an interruption, a large one waits for the disk less often.
    package var resumeInterval: UInt64 = 256 << 20

    package init() {}

    /// Records the time. Call when copying begins.
    package mutating func beginCopying() {
        var now = timespec()
        // The kernel stamps files with this clock (current_time in fs/inode.c).
        clock_gettime(CLOCK_REALTIME_COARSE, &now)
        copiedSince = now
    }

    /// Returns true if a copy has its source's type, size and time. A file system without fractions of a second may be
    /// a second off. A view may be two seconds off, because samples are compared too.
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
