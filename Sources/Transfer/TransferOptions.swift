package import Glibc

/// What a transfer does besides copying what is not there.
package struct TransferOptions: Sendable {
    /// Files that differ are replaced.
    package var isReplacing = false
    /// What differs in its content alone is found, and replaced with the others: not its time, but every byte tells.
    package var looksAtContents = false
    /// What verifies of a damaged file is written, the rest being a hole.
    package var savesDamaged = false
    /// What gives whoever starts or opens it another's rights is left behind: set-user-ID and set-group-ID bits of files, file
    /// capabilities (capabilities(7)), device nodes.
    package var dropsSpecial = false
    /// Nothing is written: what is there is compared with the source.
    package var isComparing = false
    /// Time (CLOCK_REALTIME_COARSE) at which the copying began whose result is compared. A file that changed since
    /// then and differs from its source was copied wrong, and is removed. Any other file is not ours, and stays.
    package var copiedSince: timespec?
    /// A directory that is neither transferred nor put into: the vault, where it lies in the source or at the destination.
    package var leftOut: stat?

    package init() {}

    /// Notes that copying begins now.
    package mutating func beginCopying() {
        var now = timespec()
        // The kernel stamps files with this clock (current_time in fs/inode.c).
        clock_gettime(CLOCK_REALTIME_COARSE, &now)
        copiedSince = now
    }

    func leavesOut(_ status: stat) -> Bool {
        leftOut.map { $0.st_dev == status.st_dev && $0.st_ino == status.st_ino } ?? false
    }
}
