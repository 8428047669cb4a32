internal import Daemon
internal import FuseSession
internal import LinuxSystem
internal import VaultStore

/// The words of `-o`, divided into those for FUSE and our own, with the command's flags. Pure.
struct MountOptionList: Equatable {
    var serving = ServingOptions()
    /// True if another mount may write the vault. Implies `ro`.
    var isShared = false
    var prewarms = false
    private var isNoAtime = false
    private var isNoDirAtime = false
    /// The command's own options, as on its command line: `--cache-size=64M`. fstab(5) has no other field for them.
    var ours: [String] = []

    /// Names left out, because fstab(5) may have options of other file systems or of a later vaultfs.
    var unknown: [String] = []

    /// Flags passed on unchanged (fuse(8), mount(8)).
    private static let flags: Set = [
        "rw", "allow_other", "allow_root", "default_permissions", "exec", "noexec", "suid", "nosuid", "dev", "nodev",
        "sync", "async",
    ]
    /// Words about access times. The daemon's own reads follow them, because libfuse 3.14 does not know all of them.
    private static let accessTimeFlags: Set = ["atime", "noatime", "diratime", "nodiratime"]
    /// Settings passed on with their value.
    private static let settings: Set = ["fsname", "max_read", "context", "fscontext", "defcontext", "rootcontext"]
    static let own: Set = [
        "passfile", "extpass", "keyfile", "keyring", "credential", "provider", "cache_size", "lock_file", "on_lock",
        "idle_lock", "idle_unmount", "grace", "read_ahead", "log_level",
    ]
    /// Flags for protection, so a misspelt one is refused.
    private static let protections: Set = [
        "no_kernel_cache", "follow_writer", "shared", "guard_mountpoint", "prewarm", "ro", "readonly", "read_only",
        "nosuid", "nodev", "noexec", "nosymfollow", "default_permissions", "allow_other", "allow_root", "nonempty",
    ]
    /// Options of nfs(5) that look like ours.
    private static let foreign: Set = ["lock", "nolock"]
    /// Flags for mount(8), systemd and the kernel's defaults, which need no action here.
    private static let ignored: Set = [
        "defaults", "auto", "noauto", "nofail", "_netdev", "_rnetdev", "nouser", "nousers", "noowner", "nogroup",
        "relatime", "norelatime", "strictatime", "nostrictatime", "lazytime", "nolazytime", "silent", "loud",
        "iversion", "noiversion", "mand", "nomand", "symfollow", "comment",
    ]

    /// Settings that need no action here. mount(8) writes `user=NAME`, and runs the helpers.
    private static let ignoredSettings: Set = ["comment", "user", "helper", "uhelper"]

    /// The flags implied by the words about users who may mount. A later word overrides them (mount(8)).
    private static let implied = [
        "user": ["noexec", "nosuid", "nodev"], "users": ["noexec", "nosuid", "nodev"],
        "owner": ["nosuid", "nodev"], "group": ["nosuid", "nodev"],
    ]

    /// The objects with unchanged access times. `noatime` includes directories (mount(8)).
    var accessTimes: AccessTimes { AccessTimes(keepsFiles: isNoAtime, keepsDirectories: isNoAtime || isNoDirAtime) }

    /// - Parameter lists: the value of each `-o`: words separated by commas. `\,` is a comma inside a word.
    init(_ lists: [String]) throws(CommandFailure) {
        for word in lists.flatMap(Self.words) {
            let parts = word.split(separator: "=", maxSplits: 1, omittingEmptySubsequences: false).map(String.init)
            // Our own names may be spelt as on the command line.
            let name = Self.isForOthers(parts[0]) ? parts[0] : parts[0].replacing("-", with: "_")
            if parts.count == 1 {
                try addFlag(name)
            } else {
                try addSetting(name, value: parts[1])
            }
        }
    }

    private mutating func addFlag(_ name: String) throws(CommandFailure) {
        switch name {
        // Only record it, because the last of ro and rw counts, and the caller passes it on once.
        case "ro", "rw": serving.isReadOnly = name == "ro"
        case "nonempty": serving.mayBeNonEmpty = true
        case "no_kernel_cache": serving.bypassesKernelCache = true
        // mount(8) takes `shared` for itself, as a kind of propagation.
        case "follow_writer", "shared": isShared = true
        case "guard_mountpoint": serving.guardsMountpoint = true
        case "prewarm": prewarms = true
        case "atime", "noatime": isNoAtime = name == "noatime"
        case "diratime", "nodiratime": isNoDirAtime = name == "nodiratime"
        case "dirsync":
            throw CommandFailure(
                .usage,
                "mount option 'dirsync' has no effect on a FUSE mount: leave it out, or use fsync on directories")
        case "remount": throw CommandFailure(.usage, "a mount cannot be changed: unmount it, and mount it again")
        case _ where Self.isForOthers(name) || Self.ignored.contains(name): break
        case _ where Self.implied[name] != nil: serving.fuseOptions += Self.implied[name] ?? []
        case _ where Self.flags.contains(name):
            if name == "allow_other" || name == "allow_root" { serving.allowsOthers = true }
            serving.fuseOptions.append(name)
        case _ where Self.settings.contains(name) || Self.own.contains(name):
            throw CommandFailure(.usage, "mount option '\(name)' needs a value: \(name)=…")
        default:
            let isOurs = Self.protections.union(Self.own).contains { Misspelling.isLikely(name, of: $0) }
            try leaveOut(name, unless: isOurs)
        }
    }

    private mutating func addSetting(_ name: String, value: String) throws(CommandFailure) {
        if Self.own.contains(name) {
            ours.append("--\(name.replacing("_", with: "-"))=\(value)")
        } else if Self.settings.contains(name) {
            // The kernel accepts no less than a page (fuse_parse_param in fs/fuse/inode.c).
            if name == "max_read", !(4096...UInt32.max).contains(UInt32(value) ?? 0) {
                throw CommandFailure(
                    .usage, "mount option max_read='\(shown(value.utf8))' is not a byte count of at least 4096")
            }
            serving.fuseOptions.append("\(name)=\(SessionOptions.escaped(value))")
        } else if !Self.isForOthers(name), !Self.ignoredSettings.contains(name) {
            // A flag with a value is one of our options too.
            let isFlag =
                Self.flags.contains(name) || Self.accessTimeFlags.contains(name) || Self.protections.contains(name)
            try leaveOut(
                name,
                unless: isFlag
                    || Self.own.contains { Misspelling.isLikely(name, of: $0) || Misspelling.isShort(name, for: $0) })
        }
    }

    /// Leaves out an unknown option, but refuses a probable misspelling of ours.
    private mutating func leaveOut(_ name: String, unless isOurs: Bool) throws(CommandFailure) {
        guard !isOurs || Self.foreign.contains(name) else {
            throw CommandFailure(
                .usage, "unknown mount option '\(shown(name.utf8))': 'man vaultfs-system' lists the options")
        }
        unknown.append(name)
    }

    /// `x-systemd.automount`, `X-mount.mkdir`: options for programs that read fstab(5) (mount(8)).
    private static func isForOthers(_ name: String) -> Bool { name.hasPrefix("x-") || name.hasPrefix("X-") }

    /// Returns the values of `-o` without our own options, which the command line has too, and without the words about
    /// secrets.
    static func withoutOwn(_ lists: [String]) -> [String] {
        lists.compactMap { list in
            let kept = words(list).filter { word in
                let name = String(word.prefix { $0 != "=" }).replacing("-", with: "_")
                return !own.contains(name) && name != "prewarm"
            }
            if kept.isEmpty { return nil }
            return kept.map { $0.replacing("\\", with: "\\\\").replacing(",", with: "\\,") }.joined(separator: ",")
        }
    }

    private static func words(_ list: String) -> [String] {
        var words = [""]
        var isEscaped = false
        for character in list {
            if character == "\\", !isEscaped {
                isEscaped = true
                continue
            }
            if character == ",", !isEscaped { words.append("") } else { words[words.count - 1].append(character) }
            isEscaped = false
        }
        return words.filter { !$0.isEmpty }
    }
}
