/// The result of a lock. The field names are those of the control socket. Only `complete` and
/// `unpurged` are always there: another version's daemon may leave out the others.
package struct LockReceipt: Codable, Sendable, Equatable {
    /// One step of the lock (Locking.md) and its duration.
    package struct Step: Codable, Sendable, Equatable {
        package var name: String
        package var milliseconds: Double
    }

    /// False if something could not be purged. `unpurged` lists it.
    package var complete = true
    package var unpurged: [String] = []
    package var reasons: [LockReason]? = []
    package var policy: LockPolicy?
    /// Number of inodes whose pages and attributes the kernel has dropped.
    package var inodes: Int? = 0
    /// The method by which the kernel's names were dropped: `epoch`, `expired` or `invalidated`.
    package var names: String? = ""
    /// Bytes of decrypted blocks dropped from the block cache.
    package var cacheBytes: Int? = 0
    /// Bytes of dirty mapped pages that the kernel wrote back.
    package var writtenBackBytes: UInt64? = 0
    /// Number of files that were sealed.
    package var filesSealed: UInt64? = 0
    /// Classes whose keys were wiped.
    package var keysForgotten: [String]? = []
    package var steps: [Step]? = []
    /// Time from the first step until no plaintext is available any more.
    package var purgeMilliseconds: Double? = 0
    package var totalMilliseconds: Double? = 0

    package init(policy: LockPolicy? = nil) { self.policy = policy }

    /// More than anyone reads, and short enough for a line of the control socket.
    private static let mostNamed = 100

    mutating func fail(_ what: String) {
        complete = false
        if unpurged.count < Self.mostNamed { unpurged.append(what) }
    }
}
