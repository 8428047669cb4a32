internal import Glibc
internal import LinuxSystem
internal import SystemPackage
internal import VaultStore

extension VaultLease {
    /// Which file `vaultfs.json` is, and in which state (stat(2)).
    struct FileIdentity: Equatable {
        private let numbers: [Int]

        /// Nil where it cannot be looked at.
        init?(of vault: VaultDirectory) {
            var status = stat()
            guard fstatat(vault.root.rawValue, VaultDirectory.configurationEntry, &status, AT_SYMLINK_NOFOLLOW) == 0
            else { return nil }
            numbers = [
                Int(bitPattern: UInt(status.st_dev)), Int(bitPattern: UInt(status.st_ino)), Int(status.st_size),
                status.st_mtim.tv_sec, status.st_mtim.tv_nsec, status.st_ctim.tv_sec, status.st_ctim.tv_nsec,
            ]
        }
    }

    /// An inotify(7) descriptor that reports files that get a name in the vault's directory, as a new `vaultfs.json` does.
    /// Nil if it is unavailable. It does not report changes by other machines.
    static func watch(_ vault: VaultDirectory) -> Descriptor? {
        let fd = inotify_init1(Int32(IN_NONBLOCK | IN_CLOEXEC))
        guard fd >= 0 else { return nil }
        let descriptor = Descriptor(owning: fd)
        let mask = UInt32(IN_MOVED_TO | IN_ONLYDIR)
        return inotify_add_watch(fd, "/proc/self/fd/\(vault.root.rawValue)", mask) >= 0 ? descriptor : nil
    }
}
