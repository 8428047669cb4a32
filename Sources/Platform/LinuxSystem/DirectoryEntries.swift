internal import CLinux
package import Glibc

/// The calls on a directory's entries, with a descriptor and one component (openat(2) and its kind). Only this file
/// contains them, as `scripts/lint` checks. A path from a user, on the command line or in a link, goes through
/// `Descriptor(path:)`.
extension Descriptor {
    /// Opens one entry of `directory` (openat(2)), never following a link, always close-on-exec.
    /// - Throws: `.system` with errno.
    package convenience init(
        at directory: Descriptor, _ entry: Component, flags: Int32, mode: mode_t = 0
    ) throws(StoreError) {
        let flags = flags | O_NOFOLLOW | O_CLOEXEC
        self.init(owning: try retrying(entry.bytes) { openat(directory.fd, $0, flags, mode) })
    }

    /// Opens this directory once more, with a position of its own. With O_TMPFILE, makes an unnamed file in it.
    /// - Throws: `.system` with errno.
    package func openedAgain(flags: Int32, mode: mode_t = 0) throws(StoreError) -> Descriptor {
        Descriptor(owning: try retrying { openat(fd, ".", flags | O_CLOEXEC, mode) })
    }

    /// Opens this directory for reading, with a position of its own.
    /// - Throws: `.system` with errno.
    package func openedForReading() throws(StoreError) -> Descriptor {
        try openedAgain(flags: O_RDONLY | O_DIRECTORY)
    }

    /// Opens the directory above this one.
    /// - Throws: `.system` with errno.
    package func parent(flags: Int32) throws(StoreError) -> Descriptor {
        Descriptor(owning: try retrying { openat(fd, "..", flags | O_DIRECTORY | O_CLOEXEC) })
    }

    /// Returns the status of one entry of this directory, not following a link (fstatat(2)).
    /// - Throws: `.system` with errno.
    package func status(of entry: Component) throws(StoreError) -> stat {
        var result = stat()
        try retrying(entry.bytes) { fstatat(fd, $0, &result, AT_SYMLINK_NOFOLLOW) }
        return result
    }

    /// Returns the current status of an entry. On bindfs and mergerfs, each name of a file is a file of its own to the
    /// kernel, which for a second misses changes under another name. So this asks the store if there are several.
    /// - Throws: `.system` with errno.
    package func currentStatus(of entry: Component) throws(StoreError) -> stat {
        let known = try status(of: entry)
        guard known.hasSeveralNames else { return known }
        try refreshStatus(of: entry)
        return try status(of: entry)
    }

    /// Returns the current status of this file (fstat(2)), and asks the store in the same way.
    /// - Throws: `.system` with errno.
    package func currentStatus() throws(StoreError) -> stat {
        let known = try status()
        guard known.hasSeveralNames else { return known }
        try retrying { linux_refresh_status(fd, "") }
        return try status()
    }

    /// Makes the kernel forget the remembered attributes of an entry.
    /// - Throws: `.system` with errno.
    package func refreshStatus(of entry: Component) throws(StoreError) {
        try retrying(entry.bytes) { linux_refresh_status(fd, $0) }
    }

    /// Returns the target of a symbolic link in this directory, at most 4096 bytes of it (PATH_MAX; readlinkat(2)).
    /// - Throws: `.system` with errno.
    package func linkTarget(of entry: Component) throws(StoreError) -> [UInt8] {
        try linkTarget(named: entry.bytes)
    }

    /// Returns the target of the symbolic link pinned by this O_PATH descriptor.
    /// - Throws: `.system` with errno.
    package func linkTarget() throws(StoreError) -> [UInt8] { try linkTarget(named: []) }

    private func linkTarget(named name: [UInt8]) throws(StoreError) -> [UInt8] {
        var target = [UInt8](repeating: 0, count: 4096)
        let size = target.count
        let count = try target.withMutableBytes { (buffer) throws(StoreError) -> Int in
            guard let bytes = buffer.assumingMemoryBound(to: CChar.self).baseAddress else { return 0 }
            return try retrying(name) { readlinkat(fd, $0, bytes, size) }
        }
        target.removeLast(size - count)
        return target
    }
}

// MARK: - Changes

extension Descriptor {
    /// Makes a directory (mkdirat(2)).
    /// - Throws: `.system` with errno.
    package func makeDirectory(_ entry: Component, mode: mode_t) throws(StoreError) {
        try retrying(entry.bytes) { mkdirat(fd, $0, mode) }
    }

    /// Makes a symbolic link (symlinkat(2)).
    /// - Parameter target: stored unchanged. Must not have a NUL.
    /// - Throws: `.system` with errno.
    package func makeLink(_ entry: Component, to target: [UInt8]) throws(StoreError) {
        try withCString(target) { (target) throws(StoreError) in
            _ = try retrying(entry.bytes) { symlinkat(target, fd, $0) }
        }
    }

    /// Makes a fifo, a socket or a device (mknodat(2)).
    /// - Throws: `.system` with errno.
    package func makeNode(_ entry: Component, mode: mode_t, device: dev_t) throws(StoreError) {
        try retrying(entry.bytes) { mknodat(fd, $0, mode, device) }
    }

    /// Makes a hard link to an entry of this directory, not following a link (linkat(2)).
    /// - Throws: `.system` with errno.
    package func link(_ entry: Component, to directory: Descriptor, as newEntry: Component) throws(StoreError) {
        try withCString(entry.bytes) { (old) throws(StoreError) in
            _ = try retrying(newEntry.bytes) { linkat(fd, old, directory.fd, $0, 0) }
        }
    }

    /// Gives an open file a name in `directory`. Uses the kernel's own link, because AT_EMPTY_PATH needs a capability
    /// (linkat(2)).
    /// - Throws: `.system` with errno.
    package func linkFile(to directory: Descriptor, as entry: Component) throws(StoreError) {
        let path = "/proc/self/fd/\(fd)"
        try retrying(entry.bytes) { linkat(AT_FDCWD, path, directory.fd, $0, AT_SYMLINK_FOLLOW) }
    }

    /// Renames an entry of this directory (renameat2(2)).
    /// - Parameter flags: 0, RENAME_NOREPLACE or RENAME_EXCHANGE, which some stores lack (`EINVAL`).
    /// - Throws: `.system` with errno.
    package func rename(
        _ entry: Component, to directory: Descriptor, as newEntry: Component, flags: UInt32 = 0
    ) throws(StoreError) {
        try withCString(entry.bytes) { (old) throws(StoreError) in
            _ = try retrying(newEntry.bytes) { linux_renameat2(fd, old, directory.fd, $0, flags) }
        }
    }

    /// Removes anything but a directory (unlinkat(2)).
    /// - Throws: `.system` with errno.
    package func remove(_ entry: Component) throws(StoreError) { try retrying(entry.bytes) { unlinkat(fd, $0, 0) } }

    /// Removes an entry as far as possible, ignoring errors.
    package func removeQuietly(_ entry: Component) { try? remove(entry) }

    /// Removes an empty directory (unlinkat(2)).
    /// - Throws: `.system` with errno.
    package func removeDirectory(_ entry: Component) throws(StoreError) {
        try retrying(entry.bytes) { unlinkat(fd, $0, AT_REMOVEDIR) }
    }

    /// Sets the access and the modification time of an entry, not following a link (utimensat(2)).
    /// - Throws: `.system` with errno.
    package func setTimes(of entry: Component, _ times: [timespec]) throws(StoreError) {
        try retrying(entry.bytes) { utimensat(fd, $0, times, AT_SYMLINK_NOFOLLOW) }
    }

    /// Sets the access and the modification time of this object, which may be pinned with O_PATH.
    /// - Throws: `.system` with errno.
    package func setTimes(_ times: [timespec]) throws(StoreError) {
        try retrying { utimensat(fd, "", times, linux_AT_EMPTY_PATH) }
    }

    /// Sets the owner of this object, which may be pinned with O_PATH (fchownat(2)).
    /// - Parameter uid: .max keeps the current user, and so for `gid` the group.
    /// - Throws: `.system` with errno.
    package func setOwner(_ uid: uid_t, _ gid: gid_t) throws(StoreError) {
        try retrying { fchownat(fd, "", uid, gid, linux_AT_EMPTY_PATH) }
    }
}

extension stat {
    /// True for a file with hard links.
    fileprivate var hasSeveralNames: Bool { st_mode & S_IFMT == S_IFREG && st_nlink > 1 }
}
