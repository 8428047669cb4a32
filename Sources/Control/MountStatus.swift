/// What a daemon says about its mount. The names of the fields are the interface of `vaultfs status --json`.
package struct MountStatus: Codable, Equatable, Sendable {
    package enum State: String, Codable, Sendable {
        case unlocked
        case locking
        case locked
    }

    /// The daemon's version.
    package let version: String
    package let pid: Int32
    /// The vault directory, or what a view is of; invalid UTF-8 is shown repaired.
    package let vaultPath: String
    /// The vault's id, 32 hexadecimal digits; of a view empty.
    package let vaultID: String
    /// The format of a view.
    package let view: String?
    package let mountpoint: String
    package let state: State
    package let readOnly: Bool
    /// When it was mounted: `YYYY-MM-DDThh:mm:ssZ`.
    package let mounted: String
    package let uptimeSeconds: Int64
    /// Whether every key lies in memory that is never swapped out.
    package let keysLocked: Bool
    /// Whether the block cache does.
    package let cacheLocked: Bool
    /// Why it is locked and since when, its lock files, what locking does, which keys are here (ControlSocket, Status).
    package let lock: JSONValue?
    /// What protection the memory of keys and cache could be given.
    package let memory: JSONValue?
    /// The file system's counters.
    package let statistics: JSONValue?
    /// What the kernel asked for, and how the daemon waited for it.
    package let requests: JSONValue?
    /// What does not work, a line each; of a vault nil where everything does.
    package let problems: [String]?

    package init(
        version: String, pid: Int32, vaultPath: String, vaultID: String, view: String? = nil, mountpoint: String,
        state: State,
        readOnly: Bool, mounted: String, uptimeSeconds: Int64, keysLocked: Bool, cacheLocked: Bool,
        lock: JSONValue? = nil, memory: JSONValue? = nil, statistics: JSONValue?, requests: JSONValue? = nil,
        problems: [String]? = nil
    ) {
        self.version = version
        self.pid = pid
        self.vaultPath = vaultPath
        self.vaultID = vaultID
        self.view = view
        self.mountpoint = mountpoint
        self.state = state
        self.readOnly = readOnly
        self.mounted = mounted
        self.uptimeSeconds = uptimeSeconds
        self.keysLocked = keysLocked
        self.cacheLocked = cacheLocked
        self.lock = lock
        self.memory = memory
        self.statistics = statistics
        self.requests = requests
        self.problems = problems
    }
}
