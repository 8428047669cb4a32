package import FileSystem
package import VaultCrypto

/// A file system that can be locked while it is mounted. The lock thread and its tasks call these methods, holding only
/// locks that requests do without.
package protocol LockableFileSystem: FileSystem {
    /// The gate for all requests.
    var gate: LockGate { get }
    var counters: Counters { get }
    /// The decrypted blocks.
    var cache: BlockCache { get }
    /// Sets the controller to be notified by requests. Called once, before the first request.
    func setLockController(_ controller: LockController)
    /// The number of open file handles, and of the writable ones. A grace ends when the latter reaches 0.
    var openHandles: Int { get }
    var writingHandles: Int { get }

    /// Returns every inode whose pages or attributes the kernel may have and a lock must drop. Inodes with open files
    /// come first. Each of the others comes before the directory that contains it.
    func inodesToDrop() -> [UInt64]
    /// Returns every name that the kernel may have.
    func knownNames() -> [KnownName]
    /// Closes unused directories.
    func closeDirectories()
    /// Makes written data durable, and seals files that are in place. Does not wait for checkpoints.
    func sealEverything()
    /// Puts everything in place, and seals written files, also those with changes in the log.
    func sealClosed()
    /// The number of files still to be sealed, and of those that cannot be sealed before an unlock.
    var unsealedFiles: (withKeys: Int, withoutKeys: Int) { get }
    /// Checks that the store answers. Adds an error to `missingData`.
    func checkStore()
    /// A line for each reason why written data is not durable, or lost.
    var missingData: [String] { get }

    /// The names of the keys in memory.
    var presentKeys: [String] { get }
    /// Wipes the keys that must not outlive a lock, and returns their names.
    /// - Parameter everything: true to wipe all keys.
    func forgetKeys(everything: Bool) -> [String]
    /// True if restoring forgotten keys needs a secret.
    var needsSecret: Bool { get }
    /// Restores the keys, also those of open files and directories. A key that cannot be read now is an error at its
    /// next use.
    /// - Parameter secret: from a `LockController.SecretSource`. Nil if none is needed.
    func restoreKeys(_ secret: SecretBytes?) throws(UnlockRefusal)

    /// Returns the paths of directories removed from the kernel's tree because a lock has refused their lookups. Until
    /// the next lookup, getcwd(2) fails for a program in one of them.
    /// - Parameter all: true if this may concern every directory.
    func detachedDirectories(all: Bool) -> [[UInt8]]
    /// Records that those directories have been looked up again.
    func attachedDirectories()

    /// Records the beginning of a lock, in which files being written may be finished.
    func beginArrivals()
    /// The number of files made while locked, in the current lock or in the last one.
    var arrivedFiles: Int { get }
    /// Records the end of a lock, after which arrived objects are like all others.
    func endArrivals()
}

/// The answers of a file system without open directories, which accepts nothing while it is locked.
extension LockableFileSystem {
    package func closeDirectories() {}
    package var missingData: [String] { [] }
    package func detachedDirectories(all: Bool) -> [[UInt8]] { [] }
    package func attachedDirectories() {}
    package func sealClosed() {}
    package var unsealedFiles: (withKeys: Int, withoutKeys: Int) { (0, 0) }
    package func checkStore() {}
    package func beginArrivals() {}
    package var arrivedFiles: Int { 0 }
    package func endArrivals() {}
}
