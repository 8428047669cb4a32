internal import FileSystem
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
        var descriptor: Int32

        init(kind: String, path: FilePath, descriptor: Int32) {
            self.kind = kind
            self.path = path
            self.descriptor = descriptor
        }

        init(vault: VaultDirectory) {
            self.init(kind: "vault", path: vault.path, descriptor: vault.root.rawValue)
        }
    }

    /// Returns the absolute path of a usable mountpoint.
    /// - Parameters:
    ///   - source: nil if it is not a directory.
    ///   - isGuarded: it need not be writable, since `MountpointGuard` makes it so for the mount.
    /// - Throws: code `mountpoint`, or `inUse` if a vault is mounted there.
    static func check(
        _ path: FilePath, source: Source?, mayBeNonEmpty: Bool, isGuarded: Bool
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
        if !isGuarded, geteuid() != 0, resolved.withPlatformString({ access($0, W_OK) }) != 0 {
            throw CommandFailure(
                .mountpoint,
                "mountpoint is not writable for you: \(resolved.shown); one that is guarded needs --guard-mountpoint again"
            )
        }
        if let source { try checkNesting(resolved, source) }
        if !mayBeNonEmpty { try checkEmptiness(resolved) }
        return resolved
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
    private static func checkNesting(_ path: FilePath, _ source: Source) throws(CommandFailure) {
        guard let own = identity({ status in path.withPlatformString { stat($0, &status) } }),
            let root = identity({ fstat(source.descriptor, &$0) })
        else {
            throw CommandFailure(.mountpoint, "cannot examine \(path.shown): \(currentErrno())")
        }
        if ancestors(of: AT_FDCWD, path).contains(root) {
            throw CommandFailure(
                .mountpoint, "mountpoint \(path.shown) is inside the \(source.kind) \(source.path.shown)")
        }
        if ancestors(of: source.descriptor, ".").contains(own) {
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
