package import FileSystem
package import VaultCrypto

/// A file system that can be locked while it is mounted. Its methods are called by the lock controller's thread, which holds no lock that a
/// request needs.
package protocol LockableFileSystem: FileSystem {
    /// Whether requests may pass.
    var gate: LockGate { get }
    var counters: Counters { get }
    /// What has been decrypted.
    var cache: BlockCache { get }
    /// Whoever is told what concerns the lock; set once, before the first request.
    func setLockObserver(_ observer: any LockObserver)
    /// Handles of open files, and those of them that can write: a grace ends without any.
    var openHandles: Int { get }
    var writingHandles: Int { get }

    /// Every inode whose pages or attributes the kernel may have and a lock must drop. Inodes with open files come
    /// first. Each of the others comes before the directory that contains it.
    func inodesToDrop() -> [UInt64]
    /// Every name under which the kernel may know something.
    func knownNames() -> [KnownName]
    /// Closes directories that no request uses.
    func closeDirectories()
    /// Makes durable what was written.
    func sealEverything()

    /// What the keys in memory are for.
    var presentKeys: [String] { get }
    /// Wipes the keys that must not outlive a lock. Returns what they were for.
    /// - Parameter everything: all keys.
    func forgetKeys(everything: Bool) -> [String]
    /// Whether keys that were forgotten come back only with a secret.
    var needsSecret: Bool { get }
    /// Brings the keys back, those of what is open too. What cannot be read now is an error when it is used.
    /// - Parameter secret: what a `LockController.SecretSource` gave; nil where none is needed.
    func restoreKeys(_ secret: SecretBytes?) throws(UnlockRefusal)

    /// Paths of directories that the kernel has taken out of its tree, because it was refused when it asked whether they
    /// are still there. A program that works in one has no getcwd(2) until somebody looks it up again.
    /// - Parameter all: every directory it knows may be such.
    func detachedDirectories(all: Bool) -> [[UInt8]]
    /// They have been looked up again.
    func attachedDirectories()
}
