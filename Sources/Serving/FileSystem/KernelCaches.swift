/// The plaintext kept by the kernel and the workers for a mount. The lock thread and its tasks call these functions,
/// holding only locks that requests do without. Results are failures, one line each for people.
package protocol KernelCaches: Sendable {
    /// Drops the pages that failed writes have left in the kernel.
    func dropUnwritten() -> [String]
    /// Drops the pages and attributes of inodes. The kernel first writes dirty mapped pages back, as requests to us.
    func dropInodes(_ inodes: [UInt64]) -> [String]
    /// Makes the kernel free unused inodes, together with their names. Until then root can reach them by a file handle
    /// (open_by_handle_at(2)). An inode in use stays, and so do the directories above it.
    /// - Parameter inodes: ordered so that each comes before the directory that contains it.
    func freeInodes(_ inodes: [UInt64]) -> [String]
    /// Drops all names in the kernel, or makes the kernel ask before it uses one. First waits until the kernel has
    /// linked the names of all sent replies, which would survive otherwise. Threads waiting in one of these directories
    /// get their replies first.
    /// - Parameter names: returns all names that the kernel may have, for kernels that drop them one by one.
    /// - Returns: `method` is `epoch`, `expired` or `invalidated`.
    func dropNames(_ names: () -> [KnownName]) -> (method: String, failures: [String])
    /// Looks up paths below the mountpoint, as a program would, while `goesOn` returns true. Returns true if it has
    /// finished within a second.
    func lookUp(_ paths: [[UInt8]], while goesOn: @escaping @Sendable () -> Bool) -> Bool
    /// Makes every worker wipe its buffers and key schedules. Returns when all have.
    /// - Parameter waitingForAll: true to wait also for workers in fsync(2) or the like, which may take long. Otherwise
    ///   they wipe when their request ends.
    func wipeWorkers(waitingForAll: Bool) -> [String]
    /// Waits for the workers left by the last call of `wipeWorkers`. Returns the number of those still to wipe.
    func awaitWipedWorkers(until deadline: ContinuousClock.Instant) -> Int
}

/// A name that the kernel may have.
package struct KnownName: Sendable {
    package var parent: UInt64
    package var name: [UInt8]
    /// False only for an unopened file.
    package var mayBeInUse: Bool

    package init(parent: UInt64, name: [UInt8], mayBeInUse: Bool = true) {
        (self.parent, self.name, self.mayBeInUse) = (parent, name, mayBeInUse)
    }
}
