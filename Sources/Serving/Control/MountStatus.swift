package import FileSystem
package import LinuxSystem
package import Locking

/// A mount's state. `vaultfs status --json` documents the names of the fields. Fields added later must be optional,
/// because the daemon may be of an older version.
package struct MountStatus: Codable, Equatable, Sendable {
    package let version: String
    package let pid: Int32
    /// The vault directory, or the source of a view. Invalid UTF-8 is repaired.
    package var vaultPath: String
    /// The vault's id, 32 hexadecimal digits. Empty for a view.
    package var vaultID: String
    /// The format of a view.
    package var view: String?
    package let mountpoint: String
    /// `unlocked`, `locking` or `locked`.
    package let state: String
    package let readOnly: Bool
    /// The time of the mount: `YYYY-MM-DDThh:mm:ssZ`.
    package let mounted: String
    package var uptimeSeconds: Int64?
    /// True if all keys lie in memory that is never swapped out.
    package var keysNeverSwapped: Bool?
    /// True if the block cache lies in such memory.
    package var cacheNeverSwapped: Bool?

    /// The lock's state and settings (ControlSocket.md, status).
    package var lock: LockStatus?
    package var memory: MemoryProtection?
    package var statistics: Statistics?
    /// Counters of the kernel's requests.
    package var requests: RequestStatistics?
    /// The abilities of the vault's store. Nil for a view.
    package var store: StoreTraits?
    /// True if the mount command made the mountpoint. The unmount command removes it.
    package var madeMountpoint: Bool?
    /// The mount's problems, each as a line for people. Nil if there are none.
    package var problems: [String]?

    package init(
        version: String, pid: Int32, vaultPath: String, vaultID: String, mountpoint: String, state: String,
        readOnly: Bool, mounted: String
    ) {
        self.version = version
        self.pid = pid
        self.vaultPath = vaultPath
        self.vaultID = vaultID
        self.mountpoint = mountpoint
        self.state = state
        self.readOnly = readOnly
        self.mounted = mounted
    }

    /// True while the daemon, after an unclean end, completes half-made files and directories as empty ones.
    package var isCompleting: Bool { statistics?.isCompleting ?? false }
}
