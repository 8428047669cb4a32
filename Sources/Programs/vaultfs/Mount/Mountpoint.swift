internal import CLinux
internal import FileSystem
internal import FoundationEssentials
internal import Glibc
internal import LinuxSystem
internal import SystemPackage
internal import Transfer
internal import VaultStore

/// A checked mountpoint, kept open: while a passphrase is typed, its owner can put another directory in its place.
struct CheckedMountpoint {
    /// Absolute, without links.
    let path: FilePath
    /// The mountpoint. If that is missing, the directory for it.
    fileprivate let directory: Descriptor
    fileprivate let isMissing: Bool
    /// True for one that a mount has guarded by its mode, and that was not removed.
    fileprivate var isGuarded = false

    /// Guards the mountpoint if it is made now, or was made and guarded by an earlier mount.
    func apply(to list: inout MountOptionList) {
        guard isMissing || isGuarded, !list.mayBeNonEmpty else { return }
        if isMissing && !list.guardsMountpoint { list.makesMountpoint = true }
        list.guardsMountpoint = true
    }
}

/// Checks a mountpoint before a passphrase is asked for.
enum Mountpoint {
    /// Proposed for a new vault, beside it.
    private static let usualName = "Private"

    /// Returns a usable mountpoint, and checks that this machine can mount.
    /// - Parameters:
    ///   - source: the name of what is mounted, for messages.
    ///   - root: nil if it is not a directory.
    ///   - isMade: true if `use` may make it.
    /// - Throws: code `mountpoint`, `inUse` if a vault is mounted there, or `cannotMount`.
    static func check(
        _ path: FilePath, source: String, root: Descriptor?, _ list: MountOptionList, isMade: Bool
    ) throws(CommandFailure) -> CheckedMountpoint {
        var resolved: FilePath
        do throws(Errno) { resolved = try ResolvedPath.of(path) } catch {
            guard isMade, error == .noSuchFileOrDirectory else { throw failure(path, error) }
            return try checkMissing(path, source: source, root: root, list)
        }
        if let entry = try MountTable.read().entry(at: resolved.bytes), entry.isVault {
            // A mount whose daemon has died stays in the table.
            if entry.isDead() { throw failure(resolved, .socketNotConnected) }
            throw CommandFailure(
                .inUse, "\(resolved.shown) is mounted already, from \(FilePath(bytes: entry.source).shown)")
        }
        let directory: Descriptor
        do throws(StoreError) {
            directory = try Descriptor(path: resolved, flags: linux_O_PATH | O_DIRECTORY)
            // The kernel's spelling: upper and lower case may be one on this file system.
            resolved = try directory.kernelPath()
        } catch {
            throw failure(path, error.errno)
        }
        // fusermount3(1) requires this of an ordinary user. Our message is clearer.
        // `MountpointGuard` makes one writable for the mount.
        let isUnwritable = geteuid() != 0 && resolved.withPlatformString { access($0, W_OK) } != 0
        let isGuarded = isUnwritable && (try? directory.status()).map { $0.st_uid == geteuid() } ?? false
        if isUnwritable, !list.guardsMountpoint, !isGuarded || list.mayBeNonEmpty {
            throw CommandFailure(.mountpoint, "mountpoint is not writable for you: \(resolved.shown)")
        }
        // The source would be read through its own mount. An ancestor that cannot be examined ends the search.
        if let root, (try? directory.isInside(root)) == true {
            throw CommandFailure(.mountpoint, "mountpoint \(resolved.shown) is inside the \(source)")
        }
        if let root, (try? root.isInside(directory)) == true {
            throw CommandFailure(.mountpoint, "the \(source) is inside the mountpoint \(resolved.shown)")
        }
        if !list.mayBeNonEmpty { try checkEmptiness(directory, resolved) }
        try checkDevice(list)
        return CheckedMountpoint(path: resolved, directory: directory, isMissing: false, isGuarded: isGuarded)
    }

    /// The same for one that `use` makes.
    private static func checkMissing(
        _ path: FilePath, source: String, root: Descriptor?, _ list: MountOptionList
    ) throws(CommandFailure) -> CheckedMountpoint {
        var resolved: FilePath
        let parent: Descriptor
        let status: stat
        do {
            resolved = try ResolvedPath.ofMountpoint(path)
            parent = try Descriptor(path: resolved.removingLastComponent(), flags: linux_O_PATH | O_DIRECTORY)
            status = try parent.status()
            if let name = resolved.lastComponent { resolved = try parent.kernelPath().appending(name) }
        } catch {
            throw CommandFailure(
                .mountpoint,
                "mountpoint does not exist: \(path.shown), nor the directory for it: make it with "
                    + "'mkdir -p \(path.quotedForShell)'")
        }
        // A link that leads nowhere is there.
        guard isMissing(resolved) else { throw failure(path, .noSuchFileOrDirectory) }
        let isWritable = resolved.removingLastComponent().withPlatformString { access($0, W_OK | X_OK) } == 0
        guard status.st_uid == geteuid(), isWritable else {
            throw CommandFailure(
                .mountpoint,
                "mountpoint does not exist: \(path.shown): the directory for it is not yours, so make it first")
        }
        if let root, (try? parent.isInside(root)) == true {
            throw CommandFailure(.mountpoint, "mountpoint \(resolved.shown) is inside the \(source)")
        }
        try checkDevice(list)
        return CheckedMountpoint(path: resolved, directory: parent, isMissing: true)
    }

    /// Mounts on a checked mountpoint. Makes it if it is missing, and then removes it again if `mount` throws.
    /// - Parameter mount: called with the mountpoint, open.
    static func use(_ mountpoint: CheckedMountpoint, _ mount: (Descriptor) throws -> Void) throws {
        guard mountpoint.isMissing, let name = mountpoint.path.lastComponent else {
            return try mount(mountpoint.directory)
        }
        let (parent, entry) = (mountpoint.directory, FilePath(root: nil, [name]).bytes)
        do throws(StoreError) { try retrying(entry) { mkdirat(parent.fd, $0, 0o700) } } catch {
            throw CommandFailure(.mountpoint, "cannot make the mountpoint \(mountpoint.path.shown): \(error.errno)")
        }
        do { try mount(Descriptor(at: parent.fd, entry, flags: linux_O_PATH | O_DIRECTORY)) } catch {
            _ = withCString(entry) { unlinkat(parent.fd, $0, AT_REMOVEDIR) }
            throw error
        }
    }

    /// Removes a mountpoint that a mount has made, if it is empty and nothing is mounted there.
    static func removeMade(_ path: FilePath) { _ = path.withPlatformString { rmdir($0) } }

    /// Checks that an open mountpoint is still at its path: it was neither moved nor replaced.
    /// - Throws: code `mountpoint`.
    static func checkUnmoved(_ directory: Descriptor, _ path: FilePath) throws(CommandFailure) {
        let now: FilePath
        do throws(StoreError) { now = try directory.kernelPath() } catch { throw failure(path, error.errno) }
        guard now.bytes == path.bytes else {
            throw CommandFailure(.mountpoint, "mountpoint \(path.shown) was moved or replaced after it was checked")
        }
    }

    /// Proposes a mountpoint for a new vault: a directory beside it that does not exist yet.
    static func suggestion(for vault: FilePath) -> FilePath {
        // Such as `.`.
        let path = vault.lastComponent?.kind == .regular ? vault : (try? ResolvedPath.of(vault)) ?? vault
        let usual = path.removingLastComponent().appending(usualName)
        return isMissing(usual) ? usual : FilePath(bytes: path.bytes + Array(".open".utf8))
    }

    /// lstat(2), which mounts nothing by itself (autofs).
    private static func isMissing(_ path: FilePath) -> Bool {
        var status = stat()
        return path.withPlatformString { lstat($0, &status) } != 0 && errno == ENOENT
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

    /// - Parameter path: for messages.
    /// - Throws: code `mountpoint`.
    static func checkEmptiness(_ directory: Descriptor, _ path: FilePath) throws(CommandFailure) {
        let isEmpty: Bool
        do throws(StoreError) {
            var reader = DirectoryReader(
                try Descriptor(at: directory.fd, Array(".".utf8), flags: O_RDONLY | O_DIRECTORY))
            isEmpty = try reader.next() == nil
        } catch {
            throw failure(path, error.errno)
        }
        guard isEmpty else {
            throw CommandFailure(
                .mountpoint, "mountpoint is not empty: \(path.shown); '-o nonempty' mounts over its content")
        }
    }

    private static func failure(_ path: FilePath, _ error: Errno) -> CommandFailure {
        switch error {
        case .noSuchFileOrDirectory: CommandFailure(.mountpoint, "mountpoint does not exist: \(path.shown)")
        case .notDirectory: CommandFailure(.mountpoint, "mountpoint is not a directory: \(path.shown)")
        case .socketNotConnected:
            CommandFailure(
                .mountpoint,
                "a mount whose daemon died is at \(path.shown): remove it with 'vaultfs unmount \(path.shown)'")
        default:
            CommandFailure(
                .mountpoint,
                "mountpoint \(path.shown) cannot be used: \(error)"
                    + (error == .permissionDenied ? closedMount(above: path) : ""))
        }
    }

    /// The other user's FUSE mount that a path is in. The kernel lets nobody else enter it, not even root (fuse(8)).
    private static func closedMount(above path: FilePath) -> String {
        guard let directory = try? ResolvedPath.of("."), let table = try? MountTable.read() else { return "" }
        let whole = directory.pushing(path).lexicallyNormalized()
        let mounts = table.entries.filter { whole.starts(with: FilePath(bytes: $0.mountpoint)) }
        guard let mount = mounts.max(by: { $0.mountpoint.count < $1.mountpoint.count }), let user = mount.userID,
            user != geteuid()
        else { return "" }
        let option = geteuid() == 0 ? "allow_root or allow_other" : "allow_other"
        return ": it is in a mount of \(MountOwner.name(of: user)), which others can use only with -o \(option)"
    }
}

extension Descriptor {
    /// The path that the kernel has for an open directory (proc_pid_fd(5)).
    func kernelPath() throws(StoreError) -> FilePath {
        let descriptors = try Descriptor(path: "/proc/self/fd", flags: O_RDONLY | O_DIRECTORY)
        return FilePath(bytes: try descriptors.linkTarget(of: Array("\(fd)".utf8)))
    }
}

extension VaultDirectory {
    /// The vault's path now: it may have been moved since it was opened. Does not ask the store, which may not answer.
    var currentPath: FilePath {
        // The kernel adds this to the path of a directory that was removed.
        guard let now = try? descriptor.kernelPath(), !now.string.hasSuffix(" (deleted)") else { return path }
        return now
    }
}
