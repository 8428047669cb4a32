package import Glibc

/// Which file it is, by whatever name.
package struct HlsFileIdentity: Hashable, Sendable {
    package var device: UInt64
    package var inode: UInt64

    package init(_ status: stat) {
        device = UInt64(status.st_dev)
        inode = UInt64(status.st_ino)
    }
}

/// What tells that a playlist is no longer the one that was read.
struct HlsStamp: Equatable, Sendable {
    let identity: HlsFileIdentity
    private let size: Int
    private let times: [Int]

    init(_ status: stat) {
        identity = HlsFileIdentity(status)
        size = status.st_size
        times = [status.st_mtim.tv_sec, status.st_mtim.tv_nsec, status.st_ctim.tv_sec, status.st_ctim.tv_nsec]
    }
}
