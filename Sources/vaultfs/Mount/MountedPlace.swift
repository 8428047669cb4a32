internal import Glibc
internal import SystemPackage

/// Where a mount was made. A lazy unmount takes it from there while programs still use it, and another one may come.
struct MountedPlace {
    private let mountpoint: FilePath
    /// What stat(2) gives as the device of the mount's files, nobody else's while it is used; nil where it is not known.
    let device: dev_t?

    /// Right after the mount was made.
    init(_ mountpoint: FilePath) {
        self.mountpoint = mountpoint
        device = Self.device(at: mountpoint)
    }

    /// Whether nothing else is known to be mounted there.
    func isUnchanged() -> Bool {
        guard let device, let now = Self.device(at: mountpoint) else { return true }
        return now == device
    }

    private static func device(at mountpoint: FilePath) -> dev_t? {
        try? MountTable.read().entry(at: mountpoint.bytes)?.device
    }
}
