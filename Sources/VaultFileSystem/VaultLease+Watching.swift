internal import Glibc
internal import LinuxSystem
internal import SystemPackage
internal import VaultStore

extension VaultLease {
    /// The stamp of `vaultfs.json`, or nil if fstatat(2) fails.
    static func stamp(of vault: VaultDirectory) -> FileStamp? {
        var status = stat()
        let result = fstatat(vault.root.rawValue, VaultDirectory.configurationEntry, &status, AT_SYMLINK_NOFOLLOW)
        return result == 0 ? FileStamp(status) : nil
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
