internal import CLinux
internal import Glibc
internal import LinuxSystem
internal import SystemPackage

/// Makes an empty mountpoint unwritable, so that nobody leaves plaintext in it while nothing is mounted there: its mode loses
/// every `w`, and root, who does not mind modes, makes it immutable too where the file system has that (chattr(1)).
///
/// fusermount3(1) asks that an ordinary user may write to the mountpoint (`check_perm` of fusermount.c), though nothing is
/// written. So the guard is lifted for the moment of mounting, and put back beneath the mount through a descriptor that was
/// opened before. A daemon that is killed in between leaves it lifted until the next mount. One thread at a time.
struct MountpointGuard {
    private let path: FilePath
    private let directory: Descriptor

    /// - Throws: code `mountpoint`.
    init(_ path: FilePath) throws(CommandFailure) {
        self.path = path
        do throws(StoreError) {
            directory = try Descriptor(at: AT_FDCWD, path.bytes, flags: O_RDONLY | O_DIRECTORY)
        } catch {
            throw Self.failure(path, error.errno)
        }
    }

    /// Guards the mountpoint, and calls `mount`, which may mount over it.
    /// - Parameter log: told what of the guard could not be had.
    func mounting<Mounted>(log: (String) -> Void, _ mount: () throws -> Mounted) throws -> Mounted {
        try check()
        try guardAnew(log: log)
        guard geteuid() != 0 else { return try mount() }
        try setMode { $0 | S_IWUSR }
        defer {
            do throws(CommandFailure) { try guardAnew(log: log) } catch { log(error.message) }
        }
        return try mount()
    }

    /// Once more: since the mountpoint was looked at somebody has been asked for a secret. What is guarded in it could not be
    /// removed; and of a file system that is mounted there the guard would be on its root, not on the mountpoint.
    private func check() throws(CommandFailure) {
        let isMount: Bool
        do throws(StoreError) {
            isMount = try directory.status().st_dev != directory.status(of: Array("..".utf8)).st_dev
        } catch {
            throw Self.failure(path, error.errno)
        }
        guard !isMount else {
            throw CommandFailure(
                .mountpoint, "mountpoint \(path.shown) cannot be guarded: something is mounted there already")
        }
        try Mountpoint.checkEmptiness(path)
    }

    private func guardAnew(log: (String) -> Void) throws(CommandFailure) {
        // Then its mode cannot be changed either.
        if linux_is_immutable(directory.fd) == 1 { return }
        try setMode { $0 & ~(S_IWUSR | S_IWGRP | S_IWOTH) }
        if geteuid() == 0, linux_make_immutable(directory.fd) != 0 {
            let reason = currentErrno()
            log(
                "root can write to \(path.shown) while nothing is mounted there: it cannot be made immutable: \(reason)"
            )
        }
    }

    private func setMode(_ change: (mode_t) -> mode_t) throws(CommandFailure) {
        do throws(StoreError) {
            let mode = try directory.status().st_mode & 0o7777
            guard change(mode) != mode else { return }
            try retrying { fchmod(directory.fd, change(mode)) }
        } catch {
            // Then nobody writes to it anyway.
            if error.errno == .readOnlyFileSystem { return }
            throw Self.failure(path, error.errno)
        }
    }

    private static func failure(_ path: FilePath, _ error: Errno) -> CommandFailure {
        CommandFailure(.mountpoint, "mountpoint \(path.shown) cannot be guarded: \(error)")
    }
}
