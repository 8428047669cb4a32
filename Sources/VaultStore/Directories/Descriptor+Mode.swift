internal import FileSystem
internal import Glibc
internal import LinuxSystem
internal import SystemPackage

extension Descriptor {
    /// chmod(2) of what an O_PATH descriptor has pinned, which fchmod(2) does not take: by the kernel's own link to it, which
    /// is no path on disk.
    /// - Throws: `ELOOP` for a symbolic link, which has no mode.
    func changePinnedMode(to mode: mode_t) throws(StoreError) {
        guard try status().st_mode & S_IFMT != S_IFLNK else { throw .system(.tooManySymbolicLinkLevels) }
        try retrying { chmod("/proc/self/fd/\(fd)", mode) }
    }

    /// Gives the owner, who asks, every permission on the directory that this O_PATH descriptor has pinned, where he has denied
    /// himself any.
    /// - Returns: the mode before; nil where it was not changed.
    func openToOwner() throws(StoreError) -> mode_t? {
        let before = try status()
        guard before.denies(0o700) else { return nil }
        try changePinnedMode(to: before.st_mode & 0o7777 | 0o700)
        return before.st_mode & 0o7777
    }

    /// Opens what this O_PATH descriptor has pinned for reading; where the owner, who asks, has denied it to himself, he is
    /// given it for a moment.
    func reopenedForReading() throws(StoreError) -> Descriptor {
        try reopened(flags: O_RDONLY | O_NONBLOCK, giving: 0o400)
    }

    /// The same for writing too. While no one else works on it.
    func reopenedForWriting() throws(StoreError) -> Descriptor {
        try reopened(flags: O_RDWR | O_NONBLOCK, giving: 0o600)
    }

    private func reopened(flags: Int32, giving mode: mode_t) throws(StoreError) -> Descriptor {
        do throws(StoreError) {
            return try reopened(flags: flags)
        } catch .system(.permissionDenied) {
            let before = try status()
            guard before.st_uid == geteuid() else { throw .system(.permissionDenied) }
            try changePinnedMode(to: before.st_mode & 0o7777 | mode)
            // Best effort: a mode that is not put back is the owner's alone.
            defer { try? changePinnedMode(to: before.st_mode & 0o7777) }
            return try reopened(flags: flags)
        }
    }

    /// Calls `body` while the owner, who asks, may read what this descriptor has open: for an attribute getxattr(2) looks at
    /// the mode again.
    func whileReadable<Result>(_ body: () throws(StoreError) -> Result) throws(StoreError) -> Result {
        let before = try status()
        guard before.denies(0o400) else { return try body() }
        try retrying { fchmod(fd, before.st_mode & 0o7777 | 0o400) }
        // Best effort, as above.
        defer { fchmod(fd, before.st_mode & 0o7777) }
        return try body()
    }
}

extension stat {
    /// Whether the owner, who asks and is not root, has not given himself all of these.
    func denies(_ mode: mode_t) -> Bool {
        st_mode & mode != mode && geteuid() != 0 && st_uid == geteuid()
    }
}
