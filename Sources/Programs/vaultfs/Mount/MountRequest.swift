internal import Control
internal import FuseSession
internal import Glibc
internal import LinuxSystem
internal import Locking
internal import SystemPackage
internal import VaultCrypto
internal import VaultStore

/// A mount to be made. The command checks everything that needs no key, and sends it to its daemon.
struct MountRequest: Codable, Sendable {
    let subject: MountSubject
    /// The vault, or the source of a view. Absolute.
    let source: FilePath
    /// Absolute, without links.
    let mountpoint: FilePath
    var options: MountOptionList
    let cacheSize: Int
    let lock: LockOptions
    /// Messages below this level are not logged.
    let logLevel: LogLevel
    /// For prefetching the vault's secret (`--prewarm`).
    var provider: KeyProvider?

    var mountOptions: MountOptions {
        let words = (options.isReadOnly ? ["ro"] : []) + (options.accessTimes.keepsFiles ? ["noatime"] : [])
        return MountOptions(
            mountpoint: mountpoint, fuseOptions: options.fuseOptions + words, sourceName: source.string,
            bypassesKernelCache: options.bypassesKernelCache)
    }
}

/// The vault or view that a mount shows.
enum MountSubject: Codable, Sendable {
    /// The id of the slot that was opened.
    case vault(slot: Int)
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
    /// Returns the function that makes the file system's own secret of the one that a client gives.
    let secretSource: @Sendable (ClientSecret) throws(ControlFailure) -> LockController.SecretSource
    /// Warnings for the user, a line each.
    var warnings: [String] = []
    /// A view's lease has no end.
    var lease: (any LeaseKeeper)?
    /// The vault, locked until the last reference goes.
    var vault: VaultDirectory?
    /// True if nothing can be written, also because the store lacks what it takes.
    var isReadOnly = true
    /// The abilities of a vault's store.
    var traits: StoreTraits?
    /// Problems that the store had at the mount, and that were logged, a line each.
    var problemsAtStart: [String] = []
}
