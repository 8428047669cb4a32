internal import Glibc

/// Something in the source that is being transferred.
struct SourceObject<Item: Sendable> {
    let item: Item
    /// Before anything of it was read.
    let status: stat
    /// At the destination.
    let name: [UInt8]
    /// Below the source.
    let path: [UInt8]

    var kind: mode_t { status.st_mode & S_IFMT }
}
