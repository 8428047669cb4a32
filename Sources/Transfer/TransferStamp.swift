internal import Glibc

/// Which source it is, unchanged: whoever writes to a file changes its times.
struct TransferStamp: Equatable {
    private let numbers: [Int64]

    init(_ status: stat) {
        numbers = [
            Int64(truncatingIfNeeded: status.st_dev), Int64(truncatingIfNeeded: status.st_ino), Int64(status.st_size),
            Int64(status.st_mtim.tv_sec), Int64(status.st_mtim.tv_nsec), Int64(status.st_ctim.tv_sec),
            Int64(status.st_ctim.tv_nsec),
        ]
    }

    /// Whether a copy has its source's type, size and time; a file system that keeps no fractions of a second may be a
    /// second off.
    static func isSame(_ copy: stat, _ source: stat) -> Bool {
        guard copy.st_mode & S_IFMT == source.st_mode & S_IFMT,
            source.st_mode & S_IFMT != S_IFREG || copy.st_size == source.st_size
        else { return false }
        let (one, other) = (copy.st_mtim, source.st_mtim)
        return one.tv_nsec == other.tv_nsec
            ? one.tv_sec == other.tv_sec : one.tv_nsec == 0 && (one.tv_sec &- other.tv_sec).magnitude <= 1
    }
}
