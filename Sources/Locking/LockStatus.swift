internal import LinuxSystem

/// The lock in `status`. The field names are those of the control socket.
package struct LockStatus: Codable, Sendable {
    package var state: String
    /// Empty while it is not locked.
    package var reasons: [LockReason] = []
    /// Time of the last state change: `YYYY-MM-DDThh:mm:ssZ`.
    package var since = UtcTime.now()
    package var policy: LockPolicy
    package var lockFiles: [String]
    /// A line for each lock file that is a reason now.
    package var seen: [String] = []
    /// True if unlocking needs a slot's secret.
    package var needsSecret = false
    /// Classes whose keys are in memory.
    package var classKeys: [String] = []
    package var graceSeconds: Double
    package var idleSeconds: Double?
    /// Known expiry of the slot that opened it: `YYYY-MM-DDThh:mm:ssZ`. Nil if it never expires.
    package var leaseEnds: String?
    package var openFiles = 0
    package var openForWriting = 0
    package var refusedRequests: UInt64 = 0
    package var locks = 0
    package var lastReceipt: LockReceipt?
}

/// The reason of a refused unlock. The texts are lines for people.
package enum UnlockRefusal: Error, Sendable, Equatable {
    /// These lock files exist, or looking for them fails.
    case lockFile([String], reason: String)
    case secretNeeded
    /// The secret opens no slot.
    case wrongSecret(String)
    /// The secret is right, but its slot cannot be used now.
    case slotExpired(String)
    case tooManyTries(seconds: Int)
    case failed(String)
}
