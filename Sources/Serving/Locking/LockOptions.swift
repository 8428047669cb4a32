package import FileSystem

/// The treatment of keys at a lock.
package enum LockPolicy: String, CaseIterable, Codable, Sendable {
    /// Keys stay in protected memory. The mount unlocks when the reason ends.
    case refuse
    /// Keys that must not outlive a lock are wiped. An unlock needs a slot's secret.
    case forget
}

/// The settings of a mount's lock.
package struct LockOptions: Codable, Sendable {
    package var lockFiles: [LockFile]
    package var policy: LockPolicy
    /// The time in which programs with files open for writing can finish.
    package var graceMilliseconds: Int
    /// The time without a request after which the mount locks. Nil for never.
    package var idleMilliseconds: Int?
    /// The time for which a lock waits for requests stuck in the store.
    package var storeTimeoutMilliseconds = 10_000

    package init(
        lockFiles: [LockFile] = [], policy: LockPolicy = .refuse, graceMilliseconds: Int = 0,
        idleMilliseconds: Int? = nil
    ) {
        self.lockFiles = lockFiles
        self.policy = policy
        self.graceMilliseconds = graceMilliseconds
        self.idleMilliseconds = idleMilliseconds
    }
}

/// The reason of a lock. The raw values are those of the control socket.
package enum LockReason: String, Codable, Sendable, CaseIterable {
    /// A lock file exists, or checking for it fails.
    case lockFile = "lock-file"
    /// A lock file's directory was removed or replaced, or can no longer be watched.
    case lockDirectory = "lock-directory"
    case command, idle, signal
    /// The slot that opened the vault has expired.
    case expired
}

/// An event of a mount's lock.
package enum LockEvent: Sendable {
    /// The grace may be 0.
    case willLock([LockReason], graceMilliseconds: Int)
    case didLock(LockReceipt)
    case willUnlock, didUnlock
    /// The number of requests refused since the last such event.
    case denied(count: UInt64)
    /// A request, or work in the background, has found damage.
    case integrityError(Damage)
    /// A part of the vault does not work. At the end of the mount: some written data may not be in place.
    case problem(String, isAtEnd: Bool)
}
