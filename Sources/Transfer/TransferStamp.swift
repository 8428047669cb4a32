internal import Glibc

/// A source's identity, size and times. A write to a file changes its times.
struct TransferStamp: Equatable {
    private let device: dev_t
    private let numbers: [Int64]

    init(_ status: stat) {
        device = status.st_dev
        numbers = [
            Int64(truncatingIfNeeded: status.st_ino), Int64(status.st_size), Int64(status.st_mtim.tv_sec),
            Int64(status.st_mtim.tv_nsec), Int64(status.st_ctim.tv_sec), Int64(status.st_ctim.tv_nsec),
        ]
    }

    /// All but the device, whose number can change with a restart.
    var description: String { numbers.map { "\($0)" }.joined(separator: " ") }
}
