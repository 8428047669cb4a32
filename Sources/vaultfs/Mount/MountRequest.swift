internal import FuseSession
internal import Glibc
internal import Locking
internal import SystemPackage
internal import VaultCrypto
internal import VaultFormat
internal import VaultStore

/// A mount to be made. The command checks everything that needs no key, and sends it to its daemon.
struct MountRequest: Codable, Sendable {
    /// The vault, or the source of a view. Absolute.
    var source: FilePath
    /// Absolute, without links.
    var mountpoint: FilePath
    var fuseOptions: [String]
    var cacheSize: Int
    var isReadOnly: Bool
    /// Read-only beside a writer, without a lock on the vault.
    var isShared = false
    var lock: LockOptions
    /// Keeps plaintext out of the kernel's page cache.
    var bypassesKernelCache: Bool
    /// Makes the mountpoint unwritable.
    var guardsMountpoint: Bool
    var accessTimes: AccessTimes

    /// The lock that the mount takes on the vault. Nil for none.
    var sharing: VaultDirectory.Sharing? { isShared ? nil : isReadOnly ? .shared : .exclusive }

    var mountOptions: MountOptions {
        MountOptions(
            mountpoint: mountpoint,
            fuseOptions: fuseOptions + (isReadOnly ? ["ro"] : []) + (accessTimes.keepsFiles ? ["noatime"] : []),
            sourceName: source.string, bypassesKernelCache: bypassesKernelCache)
    }
}

/// The vault or view that a mount shows.
enum MountSubject: Codable, Sendable {
    case vault(VaultSubject)
    case view(ViewSubject)

    /// The name of the command, for ps(1).
    var command: String {
        switch self {
        case .vault: "mount"
        case .view: "view"
        }
    }

    /// Opens it, in the daemon's process, before its threads.
    /// - Parameter secret: read by the command. Forgotten once it is no longer needed.
    func open(
        _ request: MountRequest, secret: SecretBytes, log: @escaping @Sendable (String) -> Void
    ) throws -> MountContents {
        switch self {
        case .vault(let vault): try vault.open(request, secret: secret, log: log)
        case .view(let view): try view.open(request, secret: secret, log: log)
        }
    }
}

/// An opened vault or view.
struct MountContents: Sendable {
    let fileSystem: any LockableFileSystem
    /// 32 hexadecimal digits. Empty for a view.
    let vaultID: String
    /// The name of a view's format.
    let view: String?
    /// Returns what does not work, a line each.
    let problems: @Sendable () -> [String]
    /// Returns the file system's own secret for the one that a user gives.
    let unlockSecret: @Sendable (SlotSecret) throws(UnlockRefusal) -> UnlockSecret
    /// Fetches the secret without a user (`--prewarm`). Nil if that is not wanted.
    var prefetch: SecretPrefetch.Fetch?
    /// A view's lease has no end.
    var lease: (any LeaseKeeper)?
    /// The vault, locked until the last reference goes.
    var vault: VaultDirectory?
}
