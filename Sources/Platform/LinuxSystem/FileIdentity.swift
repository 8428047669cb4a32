package import Glibc

/// Device and inode number (stat(2)). Unique only while the file has a name or is open (ext4 reuses numbers at once).
public struct FileIdentity: Hashable, Sendable {
    package let device, inode: UInt64

    package init(_ status: stat) { (device, inode) = (UInt64(status.st_dev), UInt64(status.st_ino)) }
}

/// A file's identity, size and times (stat(2)). Two equal stamps mean that the file was not written in between.
package struct FileStamp: Hashable, Sendable {
    package let identity: FileIdentity
    package let size: Int64
    /// Seconds and nanoseconds of the modification and the status change.
    private let (modified, modifiedNanoseconds): (Int, Int)
    private let (changed, changedNanoseconds): (Int, Int)

    package init(_ status: stat) {
        identity = FileIdentity(status)
        size = Int64(status.st_size)
        (modified, modifiedNanoseconds) = (status.st_mtim.tv_sec, status.st_mtim.tv_nsec)
        (changed, changedNanoseconds) = (status.st_ctim.tv_sec, status.st_ctim.tv_nsec)
    }
}

/// Maximum delay, in nanoseconds, of the times that the kernel gives to files: a tick of its clock (clock_getres(2)),
/// and on a busy virtual machine several (seen).
package let fileTimeDelay: UInt64 = {
    var tick = timespec()
    clock_getres(CLOCK_REALTIME_COARSE, &tick)
    return 10 * UInt64(tick.tv_sec * 1_000_000_000 + tick.tv_nsec)
}()
