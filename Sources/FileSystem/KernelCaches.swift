/// What the kernel and the workers keep of a mount's plaintext. Called by the lock controller's thread, which holds no lock that a
/// request needs.
package protocol KernelCaches: Sendable {
    /// Drops the pages and attributes of inodes, writing dirty mapped pages back first, which comes to us as requests.
    /// Returns what could not be dropped, for people.
    func dropInodes(_ inodes: [UInt64]) -> [String]
    /// Makes the kernel free inodes that nobody uses, together with their names. Until then root can reach them by a
    /// file handle (open_by_handle_at(2)). An inode in use stays, and so do the directories above it.
    /// - Parameter inodes: ordered so that each comes before the directory that contains it.
    func freeInodes(_ inodes: [UInt64])
    /// Drops every name the kernel has, or makes it ask before it uses one.
    /// - Parameter names: all that it may have, for kernels that must be told one by one.
    /// Returns how it was done, and what could not be.
    func dropNames(_ names: () -> [KnownName]) -> (method: String, failures: [String])
    /// Looks paths below the mountpoint up, as a program would, as long as `goesOn` says so. Returns whether that was
    /// done within a second.
    func lookUp(_ paths: [[UInt8]], while goesOn: @escaping @Sendable () -> Bool) -> Bool
    /// Has every worker wipe its buffers and key schedules; returns when all have.
    /// - Parameter waitingForAll: also for those within an fsync(2) or the like, which may take long; they wipe when they
    ///   are done.
    func wipeWorkers(waitingForAll: Bool) -> [String]
}

/// A name that the kernel may have.
package struct KnownName: Sendable {
    package var parent: UInt64
    package var name: [UInt8]
    /// False only for a file that nobody has open.
    package var mayBeInUse: Bool

    package init(parent: UInt64, name: [UInt8], mayBeInUse: Bool = true) {
        self.parent = parent
        self.name = name
        self.mayBeInUse = mayBeInUse
    }
}
