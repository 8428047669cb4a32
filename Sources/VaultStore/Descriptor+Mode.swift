internal import BackingStore
internal import Glibc
internal import SystemPackage

extension Descriptor {
    /// chmod(2) of what an O_PATH descriptor has pinned, which fchmod(2) does not take: by the kernel's own link to it, which
    /// is no path on disk.
    /// - Throws: `ELOOP` for a symbolic link, which has no mode.
    func changePinnedMode(to mode: mode_t) throws(StoreError) {
        guard try status().st_mode & S_IFMT != S_IFLNK else { throw .system(.tooManySymbolicLinkLevels) }
        try retrying { chmod("/proc/self/fd/\(fd)", mode) }
    }

    /// Opens what this O_PATH descriptor has pinned for reading; where the owner, who asks, has denied it to himself, he is
    /// given it for a moment.
    func reopenedForReading() throws(StoreError) -> Descriptor {
        do throws(StoreError) {
            return try reopened(flags: O_RDONLY | O_NONBLOCK)
        } catch .system(.permissionDenied) {
            let before = try status()
            guard before.st_uid == geteuid() else { throw .system(.permissionDenied) }
            try changePinnedMode(to: before.st_mode & 0o7777 | 0o400)
            // Best effort: a mode that is not put back is the owner's alone to read.
            defer { try? changePinnedMode(to: before.st_mode & 0o7777) }
            return try reopened(flags: O_RDONLY | O_NONBLOCK)
        }
    }
}
