internal import FuseSession
internal import Locking
internal import SystemPackage
internal import VaultStore

/// One mount to be made, with everything checked that can be without keys.
struct MountRequest: Sendable {
    /// The vault, or what a view is of. Absolute.
    var source: FilePath
    /// Absolute, without links.
    var mountpoint: FilePath
    var fuseOptions: [String]
    var cacheSize: Int
    var isReadOnly: Bool
    /// Read-only beside a writer: without a lock.
    var isShared = false
    var lock: LockOptions
    /// Plaintext stays out of the kernel's page cache.
    var bypassesKernelCache: Bool
    /// The mountpoint is made unwritable.
    var guardsMountpoint: Bool

    var accessTimes: AccessTimes

    /// How the vault is locked; nil: not at all.
    var sharing: VaultDirectory.Sharing? { isShared ? nil : isReadOnly ? .shared : .exclusive }

    /// The words of `-o` that express `accessTimes`.
    var accessTimeOptions: [String] {
        accessTimes.keepsFiles ? ["noatime"] : accessTimes.keepsDirectories ? ["nodiratime"] : []
    }

    /// What FuseSession takes.
    var mountOptions: MountOptions {
        MountOptions(
            mountpoint: mountpoint,
            fuseOptions: fuseOptions + (isReadOnly ? ["ro"] : []) + (accessTimes.keepsFiles ? ["noatime"] : []),
            sourceName: source.string, bypassesKernelCache: bypassesKernelCache)
    }
}
