internal import FileSystem
internal import FoundationEssentials
internal import Glibc
internal import LinuxSystem
internal import SystemPackage
internal import VaultStore

/// Checks a mountpoint before a passphrase is asked for.
enum Mountpoint {
    /// The directory to be mounted.
    struct Source {
        /// Its name in messages: `vault` or `source`.
        var kind: String
        var path: FilePath
        /// Nil if it is not a directory.
        var descriptor: Int32?
    }

    /// Returns the absolute path of a usable mountpoint, and checks that this machine can mount.
    /// - Throws: code `mountpoint`, `inUse` if a vault is mounted there, or `cannotMount`.
    static func check(
        _ path: FilePath, _ source: Source, _ list: MountOptionList
    ) throws(CommandFailure) -> FilePath {
        let resolved: FilePath
        do throws(Errno) {
            resolved = try ResolvedPath.of(path)
        } catch {
            throw failure(path, error)
        }
        if let entry = try MountTable.read().entry(at: resolved.bytes), entry.isVault {
            throw mounted(at: resolved, entry)
        }
        var status = stat()
        guard resolved.withPlatformString({ stat($0, &status) }) == 0 else { throw failure(path, currentErrno()) }
        guard status.st_mode & S_IFMT == S_IFDIR else { throw failure(path, .notDirectory) }
        // fusermount3(1) requires this of an ordinary user. Our message is clearer.
        // `MountpointGuard` makes one writable for the mount.
        if !list.guardsMountpoint, geteuid() != 0, resolved.withPlatformString({ access($0, W_OK) }) != 0 {
            throw CommandFailure(
                .mountpoint,
                "mountpoint is not writable for you: \(resolved.shown); one that is guarded needs --guard-mountpoint again"
            )
        }
        if let directory = source.descriptor { try checkNesting(resolved, source, directory) }
        if !list.mayBeNonEmpty { try checkEmptiness(resolved) }
        try checkDevice(list)
        return resolved
    }

    /// Checks that this machine allows FUSE mounts, before a passphrase is asked for.
    /// - Throws: code `cannotMount`.
    private static func checkDevice(_ list: MountOptionList) throws(CommandFailure) {
        let fd = open("/dev/fuse", O_RDWR | O_CLOEXEC)
        guard fd >= 0 else {
            let reason =
                switch currentErrno() {
                case .noSuchFileOrDirectory, .noSuchAddressOrDevice, Errno(rawValue: ENODEV):
                    "no /dev/fuse: load the fuse module ('modprobe fuse' as root)"
                case .permissionDenied, .notPermitted:
                    "no permission to open /dev/fuse: its mode is usually 666 ('ls -l /dev/fuse')"
                case let error: "cannot open /dev/fuse: \(error)"
                }
            throw CommandFailure(.cannotMount, reason)
        }
        close(fd)
        // fusermount3(1) accepts allow_other and allow_root from an ordinary user only with this line.
        guard list.allowsOthers, geteuid() != 0 else { return }
        let configurationPath = "/etc/fuse.conf"
        let text = String(decoding: FileManager.default.contents(atPath: configurationPath) ?? Data(), as: UTF8.self)
        let lines = text.split(whereSeparator: \.isNewline).map { $0.split(whereSeparator: \.isWhitespace).joined() }
        guard lines.contains("user_allow_other") else {
            throw CommandFailure(
                .cannotMount, "allow_other and allow_root need the line 'user_allow_other' in \(configurationPath)")
        }
    }

    /// The failure for a vault's mount at the mountpoint. One whose daemon has died stays in the table.
    private static func mounted(at path: FilePath, _ entry: MountTable.Entry) -> CommandFailure {
        // stat(2) would be answered by the kernel for as long as it keeps attributes; opening asks the daemon.
        let fd = path.withPlatformString { open($0, O_RDONLY | O_DIRECTORY | O_CLOEXEC) }
        if fd < 0, currentErrno() == .socketNotConnected { return failure(path, .socketNotConnected) }
        if fd >= 0 { close(fd) }
        return CommandFailure(.inUse, "\(path.shown) is mounted already, from \(FilePath(bytes: entry.source).shown)")
    }

    /// - Throws: code `mountpoint`.
    static func checkEmptiness(_ path: FilePath) throws(CommandFailure) {
        guard let listing = path.withPlatformString({ opendir($0) }) else { throw failure(path, currentErrno()) }
        defer { closedir(listing) }
        var count = 0
        // `.` and `..` are always there.
        while readdir(listing) != nil { count += 1 }
        guard count <= 2 else {
            throw CommandFailure(
                .mountpoint, "mountpoint is not empty: \(path.shown); '-o nonempty' mounts over its content")
        }
    }

    /// Checks that neither lies in the other: the source would be read through its own mount.
    private static func checkNesting(
        _ path: FilePath, _ source: Source, _ directory: Int32
    ) throws(CommandFailure) {
        guard let own = identity({ status in path.withPlatformString { stat($0, &status) } }),
            let root = identity({ fstat(directory, &$0) })
        else {
            throw CommandFailure(.mountpoint, "cannot examine \(path.shown): \(currentErrno())")
        }
        if ancestors(of: AT_FDCWD, path).contains(root) {
            throw CommandFailure(
                .mountpoint, "mountpoint \(path.shown) is inside the \(source.kind) \(source.path.shown)")
        }
        if ancestors(of: directory, ".").contains(own) {
            throw CommandFailure(
                .mountpoint, "the \(source.kind) \(source.path.shown) is inside the mountpoint \(path.shown)")
        }
    }

    /// The identity that a successful call of stat(2) or fstat(2) gives, or nil.
    private static func identity(_ call: (inout stat) -> Int32) -> FileIdentity? {
        var status = stat()
        return call(&status) == 0 ? FileIdentity(status) : nil
    }

    /// The directory and its ancestors, as far as `..` can be opened.
    private static func ancestors(of directory: Int32, _ path: FilePath) -> Set<FileIdentity> {
        let flags = O_RDONLY | O_DIRECTORY | O_CLOEXEC
        var identities: Set<FileIdentity> = []
        var current = path.withPlatformString { openat(directory, $0, flags) }
        while current >= 0 {
            guard let identity = identity({ fstat(current, &$0) }), identities.insert(identity).inserted else { break }
            let parent = openat(current, "..", flags)
            close(current)
            current = parent
        }
        if current >= 0 { close(current) }
        return identities
    }

    private static func failure(_ path: FilePath, _ error: Errno) -> CommandFailure {
        switch error {
        case .noSuchFileOrDirectory:
            CommandFailure(.mountpoint, "mountpoint does not exist: \(path.shown)")
        case .notDirectory:
            CommandFailure(.mountpoint, "mountpoint is not a directory: \(path.shown)")
        case .socketNotConnected:
            CommandFailure(
                .mountpoint,
                "a mount whose daemon died is at \(path.shown): remove it with 'vaultfs unmount \(path.shown)'")
        default:
            CommandFailure(.mountpoint, "mountpoint \(path.shown) cannot be used: \(error)")
        }
    }
}
