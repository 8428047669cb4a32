/// What a lock does to the keys.
package enum LockPolicy: String, CaseIterable, Codable, Sendable {
    /// They stay, in protected memory: whatever removes the cause unlocks.
    case refuse
    /// Those that must not outlive a lock are wiped: unlocking takes a slot's secret.
    case forget
}

/// When and how a mount locks.
package struct LockOptions: Sendable {
    package var lockFiles: [LockFile]
    package var policy: LockPolicy
    /// How long programs that have files open for writing may finish, in milliseconds.
    package var graceMilliseconds: Int
    /// After how long without a request the mount locks, in milliseconds; nil: never.
    package var idleMilliseconds: Int?
    /// How long a lock waits for requests that wait for the store, in milliseconds.
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

/// Why a mount is locked, or about to be. The raw values are the control socket's.
package enum LockReason: String, Codable, Sendable, CaseIterable {
    /// Something is where a lock file would be, or it cannot be said that nothing is.
    case lockFile = "lock-file"
    /// A lock file's directory has vanished or become another, or can no longer be watched.
    case lockDirectory = "lock-directory"
    case command
    case idle
    case signal
    /// The slot that opened the vault has expired.
    case expired
}
