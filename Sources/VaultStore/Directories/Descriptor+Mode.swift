internal import Glibc
internal import LinuxSystem
internal import SystemPackage

/// Access to objects whose mode denies it to their owner, which is this process's user.
extension Descriptor {
    /// chmod(2) of an object that an O_PATH descriptor has pinned. fchmod(2) does not take such a descriptor, so this
    /// uses the kernel's own link to it, which is no path on disk.
    /// - Throws: `ELOOP` for a symbolic link, which has no mode.
    func changePinnedMode(to mode: mode_t) throws(StoreError) {
        guard try status().st_mode & S_IFMT != S_IFLNK else { throw .system(.tooManySymbolicLinkLevels) }
        try retrying { chmod("/proc/self/fd/\(fd)", mode) }
    }

    /// Gives the owner every permission on the directory that this O_PATH descriptor has pinned.
    /// - Returns: the mode before. Nil if it was not changed.
    func openToOwner() throws(StoreError) -> mode_t? {
        let before = try status()
        guard before.denies(0o700) else { return nil }
        try changePinnedMode(to: before.st_mode & 0o7777 | 0o700)
        return before.st_mode & 0o7777
    }

    /// Opens the object that this O_PATH descriptor has pinned for reading and writing. If its mode denies that to its
    /// owner, changes the mode for a moment. Not while another process works on it.
    func reopenedForWriting() throws(StoreError) -> Descriptor {
        let flags = O_RDWR | O_NONBLOCK
        do throws(StoreError) {
            return try reopened(flags: flags)
        } catch .system(.permissionDenied) {
            let before = try status()
            guard before.st_uid == geteuid() else { throw .system(.permissionDenied) }
            try changePinnedMode(to: before.st_mode & 0o7777 | 0o600)
            // Best effort: a mode that stays changed gives access to the owner only.
            defer { try? changePinnedMode(to: before.st_mode & 0o7777) }
            return try reopened(flags: flags)
        }
    }
}

extension stat {
    /// True if this process's user is the owner, is not root, and lacks any of these permissions.
    func denies(_ mode: mode_t) -> Bool {
        st_mode & mode != mode && geteuid() != 0 && st_uid == geteuid()
    }
}
