internal import Glibc

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
