internal import CLinux
internal import FoundationEssentials
package import FuseSession
internal import Glibc
package import LinuxSystem
package import SystemPackage

/// A checked mountpoint, kept open because its owner can replace the directory while a passphrase is typed.
package struct CheckedMountpoint {
    /// Absolute, without links.
    package let path: FilePath
    /// The mountpoint or, if it is missing, its parent directory.
    fileprivate let directory: Descriptor
    fileprivate let isMissing: Bool
    /// True for an unwritable directory of this user, which an earlier mount has guarded by its mode and left behind.
    fileprivate var isGuarded = false

    /// Guards the mountpoint if this mount makes it, or if an earlier mount has guarded it.
    package func apply(to options: inout ServingOptions) {
        guard isMissing || isGuarded, !options.mayBeNonEmpty else { return }
        if isMissing && !options.guardsMountpoint { options.makesMountpoint = true }
        options.guardsMountpoint = true
    }
}

/// Checks a mountpoint before a passphrase is asked for.
package enum Mountpoint {
    /// Returns a usable mountpoint, and checks that this machine can mount.
    /// - Parameters:
    ///   - source: a word for the source, such as "vault", for messages.
    ///   - root: the source's directory. Nil if the source is something else.
    ///   - isMade: true if `use` may make a missing mountpoint.
    /// - Throws: kind `mountpoint`, `inUse` if a daemon like this one serves a mount there, or `cannotMount`.
    package static func check(
        _ path: FilePath, source: String, root: Descriptor?, _ options: ServingOptions, isMade: Bool
    ) throws(MountError) -> CheckedMountpoint {
        var resolved: FilePath
        do throws(Errno) { resolved = try ResolvedPath.of(path) } catch {
            guard isMade, error == .noSuchFileOrDirectory else { throw failure(path, error) }
            return try checkMissing(path, source: source, root: root, options)
        }
        if let entry = try MountTable.read().entry(at: resolved.bytes), entry.isOurs {
            // A dead daemon's mount stays in the table.
            if entry.isDead() { throw failure(resolved, .socketNotConnected) }
            throw MountError(
                .inUse, reason: "\(resolved.shown) is mounted already, from \(FilePath(bytes: entry.source).shown)")
        }
        let directory: Descriptor
        do throws(StoreError) {
            directory = try Descriptor(path: resolved, flags: linux_O_PATH | O_DIRECTORY)
            // Use the kernel's spelling, because this file system may ignore upper and lower case.
            resolved = try directory.kernelPath()
        } catch {
            throw failure(path, error.errno)
        }
        // fusermount3(1) requires write permission of an ordinary user, but our message is clearer. `MountpointGuard`
        // makes a guarded mountpoint writable for the mount.
        let isUnwritable = geteuid() != 0 && resolved.withPlatformString { access($0, W_OK) } != 0
        let isGuarded = isUnwritable && (try? directory.status()).map { $0.st_uid == geteuid() } ?? false
        if isUnwritable, !options.guardsMountpoint, !isGuarded || options.mayBeNonEmpty {
            throw MountError(.mountpoint, reason: "mountpoint is not writable for you: \(resolved.shown)")
        }
        // The source would be read through its own mount. The search ends at an ancestor that cannot be examined.
        if let root, (try? directory.isInside(root)) == true {
            throw MountError(.mountpoint, reason: "mountpoint \(resolved.shown) is inside the \(source)")
        }
        if let root, (try? root.isInside(directory)) == true {
            throw MountError(.mountpoint, reason: "the \(source) is inside the mountpoint \(resolved.shown)")
        }
        if !options.mayBeNonEmpty { try checkEmptiness(directory, resolved) }
        try checkDevice(options)
        return CheckedMountpoint(path: resolved, directory: directory, isMissing: false, isGuarded: isGuarded)
    }

    /// Returns a missing mountpoint for `use` to make, after the same checks.
    private static func checkMissing(
        _ path: FilePath, source: String, root: Descriptor?, _ options: ServingOptions
    ) throws(MountError) -> CheckedMountpoint {
        var resolved: FilePath
        let parent: Descriptor
        let status: stat
        do {
            resolved = try ResolvedPath.ofMountpoint(path)
            parent = try Descriptor(path: resolved.removingLastComponent(), flags: linux_O_PATH | O_DIRECTORY)
            status = try parent.status()
            if let name = resolved.lastComponent { resolved = try parent.kernelPath().appending(name) }
        } catch {
            throw MountError(
                .mountpoint,
                reason: "mountpoint does not exist: \(path.shown), nor the directory for it: make it with "
                    + "'mkdir -p \(path.quotedForShell)'")
        }
        // A link whose target is missing still occupies the name.
        guard isMissing(resolved) else { throw failure(path, .noSuchFileOrDirectory) }
        let isWritable = resolved.removingLastComponent().withPlatformString { access($0, W_OK | X_OK) } == 0
        guard status.st_uid == geteuid(), isWritable else {
            throw MountError(
                .mountpoint,
                reason: "mountpoint does not exist: \(path.shown): the directory for it is not yours, so make it first")
        }
        if let root, (try? parent.isInside(root)) == true {
            throw MountError(.mountpoint, reason: "mountpoint \(resolved.shown) is inside the \(source)")
        }
        try checkDevice(options)
        return CheckedMountpoint(path: resolved, directory: parent, isMissing: true)
    }

    /// Mounts on a checked mountpoint. Makes a missing one, and removes it again if `mount` throws.
    /// - Parameter mount: called with the mountpoint, open.
    /// - Throws: kind `mountpoint`, and the errors of `mount`.
    package static func use<Result>(
        _ mountpoint: CheckedMountpoint, _ mount: (Descriptor) throws -> Result
    ) throws -> Result {
        guard mountpoint.isMissing, let name = mountpoint.path.lastComponent else {
            return try mount(mountpoint.directory)
        }
        let (parent, entry) = (mountpoint.directory, try Component(FilePath(root: nil, [name]).bytes))
        do throws(StoreError) { try parent.makeDirectory(entry, mode: 0o700) } catch {
            throw MountError(.mountpoint, reason: "cannot make the mountpoint \(mountpoint.path.shown): \(error.errno)")
        }
        do { return try mount(Descriptor(at: parent, entry, flags: linux_O_PATH | O_DIRECTORY)) } catch {
            try? parent.removeDirectory(entry)
            throw error
        }
    }

    /// Removes a mountpoint made by a mount, if it is empty and has no mount.
    package static func removeMade(_ path: FilePath) { _ = path.withPlatformString { rmdir($0) } }

    /// Checks that an open mountpoint is still at its path: it was neither moved nor replaced.
    /// - Throws: kind `mountpoint`.
    static func checkUnmoved(_ directory: Descriptor, _ path: FilePath) throws(MountError) {
        let now: FilePath
        do throws(StoreError) { now = try directory.kernelPath() } catch { throw failure(path, error.errno) }
        guard now.bytes == path.bytes else {
            throw MountError(.mountpoint, reason: "mountpoint \(path.shown) was moved or replaced after it was checked")
        }
    }

    /// Returns true if the path is missing. Uses lstat(2), which does not trigger automounts (autofs).
    package static func isMissing(_ path: FilePath) -> Bool {
        var status = stat()
        return path.withPlatformString { lstat($0, &status) } != 0 && errno == ENOENT
    }

    /// Checks that this machine allows FUSE mounts, before a passphrase is asked for.
    /// - Throws: kind `cannotMount`.
    private static func checkDevice(_ options: ServingOptions) throws(MountError) {
        do throws(StoreError) { _ = try Descriptor(path: "/dev/fuse", flags: O_RDWR) } catch {
            let reason =
                switch error.errno {
                case .noSuchFileOrDirectory, .noSuchAddressOrDevice, Errno(rawValue: ENODEV):
                    "no /dev/fuse: load the fuse module ('modprobe fuse' as root)"
                case .permissionDenied, .notPermitted:
                    "no permission to open /dev/fuse: its mode is usually 666 ('ls -l /dev/fuse')"
                case let error: "cannot open /dev/fuse: \(error)"
                }
            throw MountError(.cannotMount, reason: reason)
        }
        // fusermount3(1) accepts allow_other and allow_root from an ordinary user only with this line.
        guard options.allowsOthers, geteuid() != 0 else { return }
        let configurationPath = "/etc/fuse.conf"
        let text = String(decoding: FileManager.default.contents(atPath: configurationPath) ?? Data(), as: UTF8.self)
        let lines = text.split(whereSeparator: \.isNewline).map { $0.split(whereSeparator: \.isWhitespace).joined() }
        guard lines.contains("user_allow_other") else {
            throw MountError(
                .cannotMount,
                reason: "allow_other and allow_root need the line 'user_allow_other' in \(configurationPath)")
        }
    }

    /// Throws if the directory has entries.
    /// - Parameter path: for messages.
    /// - Throws: kind `mountpoint`.
    static func checkEmptiness(_ directory: Descriptor, _ path: FilePath) throws(MountError) {
        let isEmpty: Bool
        do throws(StoreError) {
            var reader = DirectoryReader(try directory.openedForReading())
            isEmpty = try reader.next() == nil
        } catch {
            throw failure(path, error.errno)
        }
        guard isEmpty else {
            throw MountError(
                .mountpoint, reason: "mountpoint is not empty: \(path.shown); '-o nonempty' mounts over its content")
        }
    }

    private static func failure(_ path: FilePath, _ error: Errno) -> MountError {
        switch error {
        case .noSuchFileOrDirectory: MountError(.mountpoint, reason: "mountpoint does not exist: \(path.shown)")
        case .notDirectory: MountError(.mountpoint, reason: "mountpoint is not a directory: \(path.shown)")
        case .socketNotConnected:
            MountError(
                .mountpoint,
                reason: "a mount whose daemon died is at \(path.shown): remove it with 'vaultfs unmount \(path.shown)'")
        default:
            MountError(
                .mountpoint,
                reason: "mountpoint \(path.shown) cannot be used: \(error)"
                    + (error == .permissionDenied ? closedMount(above: path) : ""))
        }
    }

    /// Names the other user's FUSE mount around a path. The kernel admits only that user, and not even root (fuse(8)).
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
