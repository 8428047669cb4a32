internal import CLinux
internal import FuseSession
internal import Glibc
internal import LinuxSystem
internal import SystemPackage

/// Makes an empty mountpoint unwritable, so that programs cannot write plaintext to it while it is unmounted. Its mode
/// loses every `w`. Root ignores modes, so root also makes it immutable if the file system can (chattr(1)).
///
/// fusermount3(1) requires an ordinary user to have write permission for the mountpoint (`check_perm` of fusermount.c).
/// So the guard is lifted while mounting, and restored beneath the mount through a descriptor opened before. If the
/// daemon is killed in between, the guard stays lifted until the next mount. One thread at a time.
struct MountpointGuard {
    private let path: FilePath
    private let directory: Descriptor
    /// False for a mountpoint made by the mount, because it would stay immutable unless `vaultfs unmount` ends the
    /// mount.
    private let makesImmutable: Bool

    /// - Parameters:
    ///   - mountpoint: an open directory.
    ///   - path: its path, for messages.
    /// - Throws: kind `mountpoint`.
    init(_ mountpoint: Descriptor, _ path: FilePath, makesImmutable: Bool) throws(MountError) {
        self.path = path
        self.makesImmutable = makesImmutable
        directory = try Self.mapping(path) { () throws(StoreError) in
            try mountpoint.openedForReading()
        }
    }

    private static func mapping<Result>(
        _ path: FilePath, _ body: () throws(StoreError) -> Result
    ) throws(MountError) -> Result {
        do throws(StoreError) { return try body() } catch {
            throw MountError(.mountpoint, reason: "mountpoint \(path.shown) cannot be guarded: \(error.errno)")
        }
    }

    /// Guards the mountpoint, and calls `mount`, which may mount over it.
    /// - Parameter log: called if a part of the guard fails.
    func mounting<Mounted>(log: (String) -> Void, _ mount: () throws -> Mounted) throws -> Mounted {
        // Check again, because a secret may have been typed since the first check. Files in a guarded directory could
        // not be removed, and with a mount already there, the guard would apply to that mount's root.
        let isMount = try Self.mapping(path) { () throws(StoreError) in
            try directory.status().st_dev != directory.parent(flags: linux_O_PATH).status().st_dev
        }
        guard !isMount else {
            throw MountError(
                .mountpoint, reason: "mountpoint \(path.shown) cannot be guarded: something is mounted there already")
        }
        try Mountpoint.checkEmptiness(directory, path)
        try raiseGuard(log: log)
        guard geteuid() != 0 else { return try mount() }
        try setMode { $0 | S_IWUSR }
        defer {
            do throws(MountError) { try raiseGuard(log: log) } catch { log(error.reason) }
        }
        return try mount()
    }

    private func raiseGuard(log: (String) -> Void) throws(MountError) {
        // An immutable directory refuses a new mode.
        if linux_is_immutable(directory.fd) == 1 { return }
        try setMode { $0 & ~(S_IWUSR | S_IWGRP | S_IWOTH) }
        if makesImmutable, geteuid() == 0, linux_make_immutable(directory.fd) != 0 {
            let reason = currentErrno()
            log(
                "root can write to \(path.shown) while nothing is mounted there: it cannot be made immutable: \(reason)"
            )
        }
    }

    private func setMode(_ change: (mode_t) -> mode_t) throws(MountError) {
        try Self.mapping(path) { () throws(StoreError) in
            let mode = try directory.status().st_mode & 0o7777
            guard change(mode) != mode else { return }
            // A directory on a read-only file system is unwritable anyway.
            if fchmod(directory.fd, change(mode)) != 0, errno != EROFS { throw .system(currentErrno()) }
        }
    }
}
