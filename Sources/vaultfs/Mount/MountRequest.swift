internal import FuseSession
internal import Glibc
internal import Locking
internal import SystemPackage
internal import VaultCrypto
internal import VaultFormat
internal import VaultStore

/// A mount to be made. The command checks everything that needs no key, and sends it to its daemon.
struct MountRequest: Codable, Sendable {
    let subject: MountSubject
    /// The vault, or the source of a view. Absolute.
    let source: FilePath
    /// Absolute, without links.
    let mountpoint: FilePath
    let options: MountOptionList
    let cacheSize: Int
    let lock: LockOptions

    var mountOptions: MountOptions {
        let words = (options.isReadOnly ? ["ro"] : []) + (options.accessTimes.keepsFiles ? ["noatime"] : [])
        return MountOptions(
            mountpoint: mountpoint, fuseOptions: options.fuseOptions + words, sourceName: source.string,
            bypassesKernelCache: options.bypassesKernelCache)
    }

    /// Opens the vault or view, in the daemon's process, before its threads.
    /// - Parameter secret: a vault's master key, or a view's passphrase or key, empty if it has none. Forgotten once it is no
    ///   longer needed.
    func open(secret: SecretBytes, log: @escaping @Sendable (String) -> Void) throws -> MountContents {
        switch subject {
        case .vault(let slot, let provider):
            try MountContents(vault: self, slot: slot, provider: provider, masterKey: secret, log: log)
        case .view(let arguments): try MountContents(view: self, arguments, secret: secret, log: log)
        }
    }
}

/// The vault or view that a mount shows.
enum MountSubject: Codable, Sendable {
    /// The id of the slot that was opened, and the provider if the secret is prefetched (`--prewarm`).
    case vault(slot: Int, provider: KeyProvider?)
    case view(ViewArguments)

    /// The name of the command, for ps(1).
    var command: String {
        switch self {
        case .vault: "mount"
        case .view: "view"
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
