package import FileSystem
package import VaultCrypto

/// A file system that can be locked while it is mounted. The lock thread calls these methods, and holds no lock that a
/// request needs.
package protocol LockableFileSystem: FileSystem {
    /// The gate that requests pass.
    var gate: LockGate { get }
    var counters: Counters { get }
    /// The decrypted blocks.
    var cache: BlockCache { get }
    /// Sets the controller that requests notify. Once, before the first request.
    func setLockController(_ controller: LockController)
    /// Number of open file handles, and of those that can write. A grace ends when none can.
    var openHandles: Int { get }
    var writingHandles: Int { get }

    /// Every inode whose pages or attributes the kernel may have and a lock must drop. Inodes with open files come
    /// first. Each of the others comes before the directory that contains it.
    func inodesToDrop() -> [UInt64]
    /// Every name that the kernel may have.
    func knownNames() -> [KnownName]
    /// Closes directories that no request uses.
    func closeDirectories()
    /// Makes written data durable, and seals what is in place. Waits for no checkpoint.
    func sealEverything()
    /// Puts everything in place, and seals files that were written, also those with changes in the log.
    func sealClosed()
    /// Number of files that wait to be sealed, and of those that cannot be before an unlock.
    var unsealedFiles: (withKeys: Int, withoutKeys: Int) { get }
    /// Makes sure that the store answers. An error is one of `missingData` then.
    func checkStore()
    /// A line for each reason why written data is not durable, or lost.
    var missingData: [String] { get }

    /// Names of the keys in memory.
    var presentKeys: [String] { get }
    /// Wipes the keys that must not outlive a lock, and returns their names.
    /// - Parameter everything: true to wipe all keys.
    func forgetKeys(everything: Bool) -> [String]
    /// True if restoring forgotten keys needs a secret.
    var needsSecret: Bool { get }
    /// Restores the keys, also those of open files and directories. Keys that cannot be read now are an error at their next
    /// use.
    /// - Parameter secret: from a `LockController.SecretSource`. Nil if none is needed.
    func restoreKeys(_ secret: SecretBytes?) throws(UnlockRefusal)

    /// Paths of directories that the kernel has removed from its tree, because it was refused when it looked them up again.
    /// getcwd(2) of a program in one fails until the next lookup.
    /// - Parameter all: true if this may concern every directory.
    func detachedDirectories(all: Bool) -> [[UInt8]]
    /// Those directories have been looked up again.
    func attachedDirectories()

    /// A lock has begun: files that are being written may be finished in it.
    func beginArrivals()
    /// Number of files that were made while locked, in the current lock or in the last one.
    var arrivedFiles: Int { get }
    /// The mount is not locked: objects that have arrived are like all others.
    func endArrivals()
}

/// The answers of a file system that keeps no directories open, and takes in nothing while it is locked.
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
