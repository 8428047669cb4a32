internal import CLinux
internal import Glibc
package import LinuxSystem
internal import SystemPackage
package import VaultFormat

/// Calls on a directory's entries by their backing names, and on whole files.
extension Descriptor {
    /// Repeats `lock` for up to `wait`, while it throws `EAGAIN`.
    static func locking<Result>(
        wait: Duration, _ lock: () throws(StoreError) -> Result
    ) throws(StoreError) -> Result {
        let deadline = ContinuousClock.now + wait
        while true {
            do throws(StoreError) { return try lock() } catch {
                guard error == .system(.wouldBlock), ContinuousClock.now < deadline else { throw error }
            }
            // Poll, because flock(2) has no timeout, and a signal to end a blocking call could hit another one.
            usleep(20_000)
        }
    }

    /// Makes a durable file of these bytes in this directory. Without an owner, it belongs to this process's user.
    /// - Throws: `EEXIST`, `EPERM` if the owner cannot be set, `ENOSPC`. A part of the file may be left.
    func makeFile(_ entry: Component, of bytes: [UInt8], owner: Owner?, mode: mode_t) throws(StoreError) {
        let file = try Descriptor(at: self, entry, flags: O_CREAT | O_EXCL | O_WRONLY, mode: 0o600)
        if let owner { try file.changeOwner(to: owner) }
        try retrying { fchmod(file.fd, mode) }
        try file.write(bytes, at: 0)
        try file.synchronize(dataOnly: false)
    }

    /// Returns true if this file has the content that `read` returns piece by piece, from an offset on.
    func hasSameBytes(as read: (UInt64) throws(StoreError) -> [UInt8]) throws(StoreError) -> Bool {
        var offset: UInt64 = 0
        while true {
            let piece = try read(offset)
            guard try self.read(at: offset, count: max(1, piece.count)) == piece else { return false }
            if piece.isEmpty { return true }
            offset += UInt64(piece.count)
        }
    }

    /// Returns the content of a file of vaultfs's own in this directory.
    /// - Parameter isExact: true if it must have `limit` bytes.
    /// - Throws: `.damaged` if it is not a regular file, or longer than `limit` bytes; `.system`.
    package func readFile(_ entry: Component, limit: Int, isExact: Bool = false) throws(StoreError) -> [UInt8] {
        let file: Descriptor
        do throws(StoreError) {
            // O_NONBLOCK, because opening a FIFO would wait.
            file = try Descriptor(at: self, entry, flags: O_RDONLY | O_NONBLOCK)
        } catch .system(let errno) where [.tooManySymbolicLinkLevels, .noSuchAddressOrDevice].contains(errno) {
            throw .damaged("not a regular file")
        }
        let status = try file.status()
        guard status.st_mode & S_IFMT == S_IFREG else { throw .damaged("not a regular file") }
        file.dropOldPages(status)
        if isExact {
            // Two empty records must not count as one directory's. One pread(2) is enough.
            let bytes = status.st_size == off_t(limit) ? try file.read(at: 0, count: limit) : []
            if bytes.count == limit { return bytes }
            throw .damaged("\(status.st_size) bytes instead of \(limit)")
        }
        guard let bytes = try file.readToEnd(limit: limit) else { throw .damaged("over \(limit) bytes") }
        return bytes
    }

    /// Gives a file made by root to the owner of its directory. Does nothing for other users.
    func giveToOwner(of directory: Descriptor) throws(StoreError) {
        if geteuid() == 0 { try changeOwner(to: Owner(try directory.status())) }
    }

    /// fstatat(2) of an entry. Nil if it is absent.
    func statusIfPresent(of entry: Component) throws(StoreError) -> stat? {
        do throws(StoreError) { return try status(of: entry) } catch .system(.noSuchFileOrDirectory) { return nil }
    }

    /// renameat2(2) of an entry of this directory, inside it or into another one.
    func rename(
        _ entry: Component, in directory: Descriptor? = nil, as newEntry: Component, flags: UInt32 = 0
    ) throws(StoreError) {
        let directory = directory ?? self
        do throws(StoreError) {
            try rename(entry, to: directory, as: newEntry, flags: flags)
        } catch .system(.invalidArgument) where flags == linux_RENAME_NOREPLACE {
            // The store has no flags (FUSE, NFS). Only this daemon changes the directory, so a check before is enough.
            if (try? directory.status(of: newEntry)) != nil { throw .system(.fileExists) }
            try rename(entry, to: directory, as: newEntry)
        }
    }

    /// Runs `body`, which makes `temporary` here and renames it to its final name. Removes it if `body` fails.
    package func withTemporary<Result>(
        _ temporary: Component, _ body: () throws(StoreError) -> Result
    ) throws(StoreError) -> Result {
        do throws(StoreError) { return try body() } catch {
            removeQuietly(temporary)
            throw error
        }
    }

    /// Makes a durable file of these bytes, and renames it to `entry` by rename(2). Does not synchronize this
    /// directory.
    /// - Parameter isReplacing: true if the old file of this name is needed until its replacement.
    func install(
        _ bytes: [UInt8], as entry: Component, by temporary: Component, owner: Owner?, mode: mode_t,
        isReplacing: Bool = false, beforeRename: () throws(StoreError) -> Void = {}
    ) throws(StoreError) {
        try withTemporary(temporary) { () throws(StoreError) in
            try makeFile(temporary, of: bytes, owner: owner, mode: mode)
            try beforeRename()
            if !isReplacing { try rename(temporary, as: entry) }
        }
        if isReplacing { try replace(entry, by: temporary) }
    }

    /// fchownat(2) of this object, which may be pinned with O_PATH. Does nothing if it already has this owner.
    /// - Throws: errno of fstat(2) or fchownat(2), such as `EPERM`.
    package func changeOwner(to owner: Owner) throws(StoreError) {
        let now = try status()
        if now.st_uid != owner.uid || now.st_gid != owner.gid {
            try setOwner(owner.uid, owner.gid)
        }
    }

    /// Opens the directory of a path below this one, entry by entry, following no link. Also returns the last entry.
    /// - Throws: `.system` with errno, `EINVAL` for an empty path.
    package func locate(_ path: [UInt8]) throws(StoreError) -> (Descriptor, Component) {
        var entries: [Component] = []
        for entry in path.split(separator: UInt8(ascii: "/")) { entries.append(try Component(Array(entry))) }
        guard let last = entries.popLast() else { throw .system(.invalidArgument) }
        var directory = try openedForReading()
        for entry in entries { directory = try directory.inner(entry) }
        return (directory, last)
    }

    /// Returns the first bytes of a long name's sidecar, or nil if it is absent.
    func readSidecar(of entry: Component) throws(StoreError) -> [UInt8]? {
        do throws(StoreError) {
            let file = try Descriptor(at: self, EntryName.sidecar(of: entry), flags: O_RDONLY | O_NONBLOCK)
            // Read enough for the longest name, 272 bytes. Longer content does not authenticate.
            return try file.read(at: 0, count: 512)
        } catch .system(.noSuchFileOrDirectory) {
            return nil
        }
    }

    /// Returns the same, but nil also if the sidecar cannot be read.
    package func sidecarBlob(of entry: Component) -> [UInt8]? { try? readSidecar(of: entry) }

    /// Returns the plaintext name of an entry of this directory, or nil if it does not authenticate under its keys.
    package func name(of entry: Component, _ keys: DirectoryKeys) -> [UInt8]? {
        let blob = EntryName.kind(of: entry.bytes) == .longName ? sidecarBlob(of: entry) : nil
        return EntryName.decode(entry.bytes, sidecarBlob: blob, keys: keys)
    }

    /// Returns the plaintext name of a conflict copy in this directory. Nil for any other entry, and if the original's
    /// name does not authenticate under the keys.
    package func conflictName(of entry: Component, _ keys: DirectoryKeys) -> [UInt8]? {
        ConflictCopy(entry.bytes).flatMap { copy in name(of: copy.twin, keys).map { copy.name(twin: $0) } }
    }

    /// Returns true if this directory has neither the entry of a sidecar nor a conflict copy of this entry, by `twins`.
    /// - Throws: `.system` with errno.
    package func isSidecarOrphaned(_ sidecar: Component, twins: Set<Component>? = nil) throws(StoreError) -> Bool {
        guard let entry = EntryName.entry(ofSidecar: sidecar), try statusIfPresent(of: entry) == nil else {
            return false
        }
        return if let twins { !twins.contains(entry) } else { try !conflictTwins().contains(entry) }
    }

    /// Returns the entries, by spelling, with conflict copies in this directory.
    func conflictTwins() throws(StoreError) -> Set<Component> {
        Set(try allEntries().compactMap { ConflictCopy($0.bytes)?.twin })
    }

    /// Returns all entries of this directory but `.` and `..`. Reads them before the caller changes any, because
    /// getdents(2) may leave out entries of a changing directory.
    /// - Throws: `.system` with errno.
    package func allEntries() throws(StoreError) -> [Component] {
        var reader = DirectoryReader(try openedForReading())
        var entries: [Component] = []
        while let entry = try reader.next() { entries.append(entry) }
        return entries
    }
}

/// Access to objects of this process's user whose mode denies it to their owner.
extension Descriptor {
    /// chmod(2) of an object pinned by this O_PATH descriptor. fchmod(2) refuses such a descriptor, so this uses the
    /// kernel's own link to it, which is not a path on disk.
    /// - Throws: `ELOOP` for a symbolic link, which has no mode.
    func changePinnedMode(to mode: mode_t) throws(StoreError) {
        guard try status().st_mode & S_IFMT != S_IFLNK else { throw .system(.tooManySymbolicLinkLevels) }
        try retrying { chmod("/proc/self/fd/\(fd)", mode) }
    }

    /// Runs `body` with a directory in this one, open for reading even if its mode denies this to its owner. Restores
    /// the mode if `body` fails.
    func withOpenedDirectory(
        _ entry: Component, _ body: (Descriptor) throws(StoreError) -> Void
    ) throws(StoreError) {
        var closed: (pin: Descriptor, mode: mode_t)?
        if geteuid() != 0 {
            // Whoever owns it: with sshfs, stat(2) may show another number for the owner.
            let pin = try Descriptor(at: self, entry, flags: linux_O_PATH | O_DIRECTORY)
            let mode = try pin.status().st_mode & 0o7777
            if mode & 0o700 != 0o700, (try? pin.changePinnedMode(to: mode | 0o700)) != nil { closed = (pin, mode) }
        }
        do throws(StoreError) { try body(Descriptor(at: self, entry, flags: O_RDONLY | O_DIRECTORY)) } catch {
            if let closed { try? closed.pin.changePinnedMode(to: closed.mode) }
            throw error
        }
    }

    /// Gives the owner every permission on the directory pinned by this O_PATH descriptor.
    /// - Returns: the mode before, or nil if it was not changed.
    func openToOwner() throws(StoreError) -> mode_t? {
        let before = try status()
        guard before.denies(0o700) else { return nil }
        try changePinnedMode(to: before.st_mode & 0o7777 | 0o700)
        return before.st_mode & 0o7777
    }

    /// Opens the object pinned by this O_PATH descriptor for reading and writing. If its mode denies this to its owner,
    /// changes the mode for a moment. Must not be called while another process uses the object.
    func reopenedForWriting() throws(StoreError) -> Descriptor {
        let flags = O_RDWR | O_NONBLOCK
        do throws(StoreError) {
            return try reopened(flags: flags)
        } catch .system(.permissionDenied) {
            let before = try status()
            // Only the owner may change the mode. With sshfs, stat(2) may show another number for the owner.
            do throws(StoreError) { try changePinnedMode(to: before.st_mode & 0o7777 | 0o600) } catch {
                throw .system(.permissionDenied)
            }
            // Best effort: if the mode stays changed, it still gives access to the owner only.
            defer { try? changePinnedMode(to: before.st_mode & 0o7777) }
            return try reopened(flags: flags)
        }
    }
}

extension stat {
    /// True if this process's user is the owner, is not root, and lacks any of these permissions.
    func denies(_ mode: mode_t) -> Bool { st_mode & mode != mode && geteuid() != 0 && st_uid == geteuid() }
}
