internal import LinuxSystem

/// The lock in `status`. The field names are those of the control socket. Only `state` is always present, because a
/// daemon of another version may omit the others.
package struct LockStatus: Codable, Equatable, Sendable {
    package var state: String
    /// The raw values of `LockReason`, and of later versions. Empty while unlocked.
    package var reasons: [String]? = []
    /// The time of the last state change: `YYYY-MM-DDThh:mm:ssZ`.
    package var since: String? = UtcTime.now()
    /// The raw value of a `LockPolicy`, or of a later version.
    package var policy: String?
    package var lockFiles: [String]?
    /// A line for each lock file that is a reason now.
    package var seen: [String]? = []
    /// True if unlocking needs a slot's secret.
    package var needsSecret: Bool? = false
    /// The classes whose keys are in memory.
    package var classKeys: [String]? = []
    package var graceSeconds: Double?
    package var idleSeconds: Double?
    /// The known expiry of the slot that opened the vault: `YYYY-MM-DDThh:mm:ssZ`. Nil if it never expires.
    package var leaseEnds: String?
    package var openFiles: Int? = 0
    package var openForWriting: Int? = 0
    /// The number of files made in inboxes while locked, in the current lock or the last one.
    package var arrivedFiles: Int?
    package var refusedRequests: UInt64? = 0
    package var locks: Int? = 0
    package var lastReceipt: LockReceipt?
}

/// The reason of a refused unlock. The texts are lines for people.
package enum UnlockRefusal: Error, Sendable, Equatable {
    /// These lock files exist, or checking for them fails.
    case lockFile([String], reason: String)
    case secretNeeded
    /// The secret opens no slot.
    case wrongSecret(String)
    /// The secret is right, but its slot cannot be used now.
    case slotExpired(String)
    case tooManyTries(seconds: Int)
    case failed(String)
}

/// The result of a lock. The field names are those of the control socket. Only `complete` and `unpurged` are always
/// present, because a daemon of another version may omit the others.
package struct LockReceipt: Codable, Sendable, Equatable {
    /// One step of the lock (Locking.md) and its duration.
    package struct Step: Codable, Sendable, Equatable {
        package var name: String
        package var milliseconds: Double?
    }

    /// False if something could not be purged, as listed in `unpurged`.
    package var complete = true
    package var unpurged: [String] = []
    /// The raw values of `LockReason`, and of later versions.
    package var reasons: [String]? = []
    /// The raw value of a `LockPolicy`, or of a later version.
    package var policy: String?
    /// The number of inodes whose pages and attributes the kernel has dropped.
    package var inodes: Int? = 0
    /// The method by which the kernel's names were dropped: `epoch`, `expired` or `invalidated`.
    package var names: String? = ""
    /// The bytes of decrypted blocks dropped from the block cache.
    package var cacheBytes: Int? = 0
    /// The bytes of dirty mapped pages written back by the kernel.
    package var writtenBackBytes: UInt64? = 0
    /// The number of sealed files.
    package var filesSealed: UInt64? = 0
    /// A line for each reason why written data is not durable, or lost.
    package var missingData: [String]? = []
    /// The classes whose keys were wiped.
    package var keysForgotten: [String]? = []
    /// True if an unlock needs a slot's secret.
    package var needsSecret: Bool?
    package var steps: [Step]? = []
    /// The time from the first step until all plaintext is unavailable.
    package var purgeMilliseconds: Double? = 0
    package var totalMilliseconds: Double? = 0

    package init(policy: LockPolicy? = nil) { self.policy = policy?.rawValue }

    /// The most lines in `unpurged`: more than anyone reads, but short enough for a line of the control socket.
    private static let mostNamed = 100

    mutating func fail(_ what: String) {
        complete = false
        if unpurged.count < Self.mostNamed { unpurged.append(what) }
    }
}
