internal import Glibc

/// Which source file it is, unchanged: whoever writes to a file changes its times.
struct ExportStamp: Equatable {
    private let identity: [UInt64]
    let modified: timespec

    init(_ status: stat) {
        modified = status.st_mtim
        identity = [
            UInt64(status.st_dev), UInt64(status.st_ino), UInt64(bitPattern: Int64(status.st_size)),
            Self.bits(status.st_mtim.tv_sec), Self.bits(status.st_mtim.tv_nsec),
            Self.bits(status.st_ctim.tv_sec), Self.bits(status.st_ctim.tv_nsec),
        ]
    }

    static func == (one: ExportStamp, other: ExportStamp) -> Bool { one.identity == other.identity }

    private static func bits(_ number: Int) -> UInt64 { UInt64(bitPattern: Int64(number)) }

    /// The same as text, without the device, whose number may be another after a restart.
    var description: String {
        identity.dropFirst().map { "\($0)" }.joined(separator: " ")
    }

    /// Whether a file of this time can be the one that was exported: file systems keep times to two seconds at worst.
    func isAbout(_ time: timespec) -> Bool {
        (time.tv_sec &- modified.tv_sec).magnitude <= 2
    }
}
