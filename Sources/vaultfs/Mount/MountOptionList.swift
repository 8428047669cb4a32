internal import SystemPackage
internal import VaultStore

/// What `-o` said: words that go on to FUSE, and those that are ours. Pure.
struct MountOptionList: Equatable {
    /// For libfuse and the kernel, in the order given.
    var fuseOptions: [String] = []
    var isReadOnly = false
    /// Somebody else may write the vault: `ro`, too.
    var isShared = false
    /// Others than the user who mounts are let in, which fuse.conf has to permit.
    var allowsOthers = false
    var mayBeNonEmpty = false
    var bypassesKernelCache = false
    var guardsMountpoint = false
    var prewarms = false
    private var isNoAtime = false
    private var isNoDirAtime = false
    /// The options fstab has no other place for, as texts: those of `own`.
    var ours: [String: String] = [:]

    /// Names that are left out: what fstab says to other file systems, or to a later vaultfs.
    var unknown: [String] = []

    /// Passed on as they are (fuse(8), mount(8)).
    private static let flags: Set = [
        "rw", "allow_other", "allow_root", "default_permissions", "exec", "noexec", "suid", "nosuid", "dev", "nodev",
        "sync", "async",
    ]
    /// Words about access times. The daemon's own reads follow them, because libfuse 3.14 does not know all of them.
    private static let accessTimeFlags: Set = ["atime", "noatime", "diratime", "nodiratime"]
    /// Passed on with their value.
    private static let settings: Set = ["fsname", "max_read", "context", "fscontext", "defcontext", "rootcontext"]
    static let own: Set = [
        "passfile", "extpass", "keyfile", "passphrase_fd", "keyring", "credential", "provider", "cache_size",
        "lock_file",
        "on_lock", "idle_lock", "grace",
    ]
    /// Flags that one may count on.
    private static let protections: Set = [
        "no_kernel_cache", "shared", "guard_mountpoint", "prewarm", "ro", "readonly", "read_only", "nosuid", "nodev",
        "noexec",
        "nosymfollow", "default_permissions", "allow_other", "allow_root", "nonempty",
    ]
    /// What looks like one of ours, and is nfs(5)'s.
    private static let foreign: Set = ["lock", "nolock"]
    /// For mount(8), systemd and the kernel's defaults: nothing to do.
    private static let ignored: Set = [
        "defaults", "auto", "noauto", "nofail", "_netdev", "_rnetdev", "nouser", "nousers", "noowner", "nogroup",
        "relatime", "norelatime", "strictatime", "nostrictatime", "lazytime", "nolazytime", "silent", "loud",
        "iversion", "noiversion", "mand", "nomand", "symfollow", "comment",
    ]

    /// The same with a value; `user=NAME` is what mount(8) notes of who mounted, the helpers are programs for it to run.
    private static let ignoredSettings: Set = ["comment", "user", "helper", "uhelper"]

    /// What the words that say who may mount imply, until a later word says otherwise (mount(8)).
    private static let implied = [
        "user": ["noexec", "nosuid", "nodev"], "users": ["noexec", "nosuid", "nodev"],
        "owner": ["nosuid", "nodev"], "group": ["nosuid", "nodev"],
    ]

    /// The objects whose access times stay. `noatime` includes directories (mount(8)).
    var accessTimes: AccessTimes {
        AccessTimes(keepsFiles: isNoAtime, keepsDirectories: isNoAtime || isNoDirAtime)
    }

    /// - Parameter lists: the values of every `-o`: words separated by commas; `\,` is a comma inside a word.
    init(_ lists: [String]) throws(CommandFailure) {
        for word in lists.flatMap(Self.words) {
            let parts = word.split(separator: "=", maxSplits: 1, omittingEmptySubsequences: false).map(String.init)
            let name = parts[0]
            if parts.count == 1 {
                try takeFlag(name)
            } else {
                try takeSetting(name, value: parts[1])
            }
        }
    }

    private mutating func takeFlag(_ name: String) throws(CommandFailure) {
        if name == "ro" || name == "rw" { isReadOnly = name == "ro" }
        if name == "allow_other" || name == "allow_root" { allowsOthers = true }
        if name == "nonempty" {
            mayBeNonEmpty = true
        } else if name == "no_kernel_cache" {
            bypassesKernelCache = true
        } else if name == "shared" {
            isShared = true
        } else if name == "guard_mountpoint" {
            guardsMountpoint = true
        } else if name == "prewarm" {
            prewarms = true
        } else if name == "atime" || name == "noatime" {
            isNoAtime = name == "noatime"
        } else if name == "diratime" || name == "nodiratime" {
            isNoDirAtime = name == "nodiratime"
        } else if name == "dirsync" {
            throw CommandFailure(
                .usage,
                "mount option 'dirsync' has no effect on a FUSE mount: leave it out, or use fsync on directories")
        } else if name == "remount" {
            throw CommandFailure(.usage, "a mount cannot be changed: unmount it, and mount it anew")
        } else if name == "ro" || name == "rw" || Self.isForOthers(name) || Self.ignored.contains(name) {
            // ro goes on once, at the end: the last of ro and rw holds.
        } else if let words = Self.implied[name] {
            fuseOptions += words
        } else if Self.flags.contains(name) {
            fuseOptions.append(name)
        } else if Self.settings.contains(name) || Self.own.contains(name) {
            throw CommandFailure(.usage, "mount option '\(name)' needs a value: \(name)=…")
        } else {
            try leaveOut(name, unless: Self.protections.union(Self.own).contains { Misspelling.isLikely(name, of: $0) })
        }
    }

    private mutating func takeSetting(_ name: String, value: String) throws(CommandFailure) {
        if Self.own.contains(name) {
            ours[name] = value
        } else if Self.settings.contains(name) {
            // The kernel accepts no less than a page (fuse_parse_param in fs/fuse/inode.c).
            if name == "max_read", !(4096...UInt32.max).contains(UInt32(value) ?? 0) {
                throw CommandFailure(.usage, "mount option max_read='\(value)' is not a byte count of at least 4096")
            }
            fuseOptions.append("\(name)=\(Self.escaped(value))")
        } else if !Self.isForOthers(name), !Self.ignoredSettings.contains(name) {
            // A flag that was given a value is one of ours, too.
            let isFlag =
                Self.flags.contains(name) || Self.accessTimeFlags.contains(name) || Self.protections.contains(name)
            try leaveOut(
                name,
                unless: isFlag
                    || Self.own.contains { Misspelling.isLikely(name, of: $0) || Misspelling.isShort(name, for: $0) })
        }
    }

    /// What may be a protection, or say where the secret is, is refused where it is misspelt.
    private mutating func leaveOut(_ name: String, unless isOurs: Bool) throws(CommandFailure) {
        guard !isOurs || Self.foreign.contains(name) else {
            throw CommandFailure(.usage, "unknown mount option '\(name)': 'man vaultfs' lists those there are")
        }
        unknown.append(name)
    }

    /// `x-systemd.automount`, `X-mount.mkdir` and such: for programs that read fstab (mount(8)).
    private static func isForOthers(_ name: String) -> Bool { name.hasPrefix("x-") || name.hasPrefix("X-") }

    private static func words(_ list: String) -> [String] {
        var words: [String] = []
        var word = ""
        var isEscaped = false
        for character in list {
            if isEscaped {
                word.append(character)
                isEscaped = false
            } else if character == "\\" {
                isEscaped = true
            } else if character == "," {
                words.append(word)
                word = ""
            } else {
                word.append(character)
            }
        }
        return (words + [word]).filter { !$0.isEmpty }
    }

    /// As fuse(8) wants a comma or a backslash inside a value.
    static func escaped(_ value: String) -> String {
        value.map { $0 == "," || $0 == "\\" ? "\\\($0)" : String($0) }.joined()
    }
}
