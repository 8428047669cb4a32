/// What `status` tells of a mount's lock. The names of the fields are the control socket's.
package struct LockStatus: Codable, Sendable {
    package var state: String
    /// Why it is locked, empty while it is not.
    package var reasons: [LockReason]
    /// When the state was entered: `YYYY-MM-DDThh:mm:ssZ`.
    package var since: String
    package var policy: LockPolicy
    package var lockFiles: [String]
    /// Lock files that lock now, and how.
    package var seen: [String]
    /// Whether unlocking takes a slot's secret.
    package var needsSecret: Bool
    /// Classes whose keys are in memory.
    package var classKeys: [String]
    package var graceSeconds: Double
    package var idleSeconds: Double?
    /// When the slot that opened it expires, as far as that is known: `YYYY-MM-DDThh:mm:ssZ`; nil for never.
    package var leaseEnds: String?
    package var openFiles: Int
    package var openForWriting: Int
    package var refusedRequests: UInt64
    package var locks: Int
    package var lastReceipt: LockReceipt?
}

/// Why an unlock was refused.
package enum UnlockRefusal: Error, Sendable, Equatable {
    /// These lock files are there, or cannot be looked for; a line for people.
    case lockFile([String], reason: String)
    case secretNeeded
    /// The secret opens no slot; a line for people.
    case wrongSecret(String)
    /// The secret is right, and its slot may not be used now; a line for people.
    case slotExpired(String)
    case tooManyTries(seconds: Int)
    case failed(String)
}
