internal import Glibc
internal import Locking
internal import VaultCrypto
internal import VaultFormat

/// What is to be mounted: a vault, or a view. Known by the process that was typed, and again by the daemon it starts.
protocol MountSubject: Sendable {
    /// The subcommand and its own arguments, from which the daemon makes the same subject.
    var words: [[UInt8]] { get }

    /// Opens it, in the daemon's process, before its threads.
    /// - Parameter secret: what the process that was typed has read; forgotten when it is not needed any more.
    func open(_ request: MountRequest, secret: SecretBytes, log: @escaping @Sendable (String) -> Void) throws
        -> MountContents
}

/// What is mounted.
struct MountContents: Sendable {
    let fileSystem: any LockableFileSystem
    /// Of a vault, 32 hexadecimal digits; of a view empty.
    let vaultID: String
    /// The name of a view's format.
    let view: String?
    /// What does not work of it, a line each.
    let problems: @Sendable () -> [String]
    /// What the file system takes to unlock, of what a user gives for it.
    let unlockSecret: @Sendable (SlotSecret) throws(UnlockRefusal) -> UnlockSecret
    /// Asks for a secret that nobody is there to give; nil where that is not wanted. Ended by the descriptor becoming readable.
    var secretAhead: SecretAhead.Asking?
    /// Until when it may be used; a view's has no end.
    let lease: (any LeaseKeeper)?
    /// Kept for as long as it is mounted: a vault's flock.
    let hold: any Sendable
}
