internal import FileSystem

/// What a lock has done. The names of the fields are the control socket's.
package struct LockReceipt: Codable, Sendable, Equatable {
    /// One step of the order (locking.md) and what it took.
    package struct Step: Codable, Sendable, Equatable {
        package var name: String
        package var milliseconds: Double
    }

    /// False where something could not be purged; `unpurged` says what.
    package var complete = true
    package var unpurged: [String] = []
    package var reasons: [LockReason] = []
    package var policy: LockPolicy
    /// Inodes whose pages and attributes the kernel was told to drop.
    package var inodes = 0
    /// How the kernel's names were dropped: `epoch`, `expired` or `invalidated`.
    package var names = ""
    /// Bytes of decrypted blocks dropped from the block cache.
    package var cacheBytes = 0
    /// Bytes of dirty mapped pages that came back to be written.
    package var writtenBackBytes: UInt64 = 0
    /// Files whose headers now vouch for their length.
    package var filesSealed: UInt64 = 0
    /// Classes whose keys were wiped.
    package var keysForgotten: [String] = []
    package var steps: [Step] = []
    /// From the first step to the moment from which nothing is given out.
    package var purgeMilliseconds = 0.0
    package var totalMilliseconds = 0.0

    package init(policy: LockPolicy) {
        self.policy = policy
    }

    /// More than people read, and less than a line of the control socket holds.
    private static let mostNamed = 100

    mutating func fail(_ what: String) {
        complete = false
        if unpurged.count < Self.mostNamed { unpurged.append(what) }
    }
}
