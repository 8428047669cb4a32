internal import Glibc
internal import LinuxSystem
internal import SystemPackage
internal import VaultCrypto
internal import VaultFormat

/// Calls on a directory's entries by their backing names, and on whole files.
extension Descriptor {
    /// Reads up to `count` bytes.
    func read(at offset: UInt64, count: Int) throws(StoreError) -> [UInt8] {
        var bytes = [UInt8](repeating: 0, count: count)
        let size = try bytes.withMutableBytes { (buffer) throws(StoreError) in try read(at: offset, into: buffer) }
        bytes.removeLast(count - size)
        return bytes
    }

    func write(_ bytes: [UInt8], at offset: UInt64) throws(StoreError) {
        try bytes.withBytes { (bytes) throws(StoreError) in try write(bytes, at: offset) }
    }

    /// Opens this directory for reading, with a position of its own.
    func openedForReading() throws(StoreError) -> Descriptor {
        try Descriptor(at: fd, [UInt8(ascii: ".")], flags: O_RDONLY | O_DIRECTORY)
    }

    /// flock(2) with `LOCK_EX` or `LOCK_SH`. Retries for up to `wait`. The lock lasts until the descriptor and all its
    /// duplicates are closed.
    /// - Throws: `EAGAIN` if another process keeps it for all of `wait`.
    func lockWhole(_ operation: Int32, wait: Duration) throws(StoreError) {
        let deadline = ContinuousClock.now + wait
        while true {
            do throws(StoreError) {
                try retrying { flock(fd, operation | LOCK_NB) }
                return
            } catch {
                guard error == .system(.wouldBlock), ContinuousClock.now < deadline else { throw error }
            }
            // flock(2) has no timeout, and a signal that ends a blocking call could hit another one.
            usleep(20_000)
        }
    }

    /// Makes a durable file of these bytes in this directory, with the owner and mode of `status`.
    func makeFile(_ entry: [UInt8], of bytes: [UInt8], like status: stat) throws(StoreError) {
        try makeFile(
            entry, of: bytes, owner: Owner(uid: status.st_uid, gid: status.st_gid), mode: status.st_mode & 0o7777)
    }

    /// The same with this owner and mode. If no owner is given, the file belongs to this process's user.
    /// - Throws: `EEXIST`, `EPERM` if the owner cannot be set, `ENOSPC`. A part of the file may be left.
    func makeFile(_ entry: [UInt8], of bytes: [UInt8], owner: Owner?, mode: mode_t) throws(StoreError) {
        let file = try Descriptor(at: fd, entry, flags: O_CREAT | O_EXCL | O_WRONLY, mode: 0o600)
        let made = try file.status()
        if let owner, made.st_uid != owner.uid || made.st_gid != owner.gid {
            try retrying { fchown(file.fd, owner.uid, owner.gid) }
        }
        try retrying { fchmod(file.fd, mode) }
        try file.write(bytes, at: 0)
        try file.synchronize(dataOnly: false)
    }

    /// Gives a file that root made the owner of the directory that it is in. Does nothing for other users.
    func giveToOwner(of directory: Descriptor) throws(StoreError) {
        guard geteuid() == 0 else { return }
        let (made, owner) = (try status(), try directory.status())
        if made.st_uid != owner.st_uid || made.st_gid != owner.st_gid {
            try retrying { fchown(fd, owner.st_uid, owner.st_gid) }
        }
    }

    /// unlinkat(2) of anything but a directory.
    func remove(_ entry: [UInt8]) throws(StoreError) {
        try withCString(entry) { (name) throws(StoreError) in _ = try retrying { unlinkat(fd, name, 0) } }
    }

    /// The same. Best effort.
    func removeQuietly(_ entry: [UInt8]) {
        _ = withCString(entry) { unlinkat(fd, $0, 0) }
    }

    /// Removes an empty directory. Best effort.
    func removeDirectoryQuietly(_ entry: [UInt8]) {
        _ = withCString(entry) { unlinkat(fd, $0, AT_REMOVEDIR) }
    }

    /// linkat(2) of an entry of this directory.
    func link(_ entry: [UInt8], to directory: Descriptor, as newEntry: [UInt8]) throws(StoreError) {
        try withCString(entry) { (old) throws(StoreError) in
            try withCString(newEntry) { (new) throws(StoreError) in
                _ = try retrying { linkat(fd, old, directory.fd, new, 0) }
            }
        }
    }

    /// The first bytes of a long name's sidecar. Nil if it is absent.
    func readSidecar(of entry: [UInt8]) throws(StoreError) -> [UInt8]? {
        do throws(StoreError) {
            let file = try Descriptor(at: fd, EntryName.sidecar(of: entry), flags: O_RDONLY | O_NONBLOCK)
            // The longest name has 272 bytes. Anything longer does not authenticate.
            return try file.read(at: 0, count: 512)
        } catch .system(.noSuchFileOrDirectory) {
            return nil
        }
    }

    /// The same. Also nil if it cannot be read.
    func sidecarBlob(of entry: [UInt8]) -> [UInt8]? {
        do throws(StoreError) { return try readSidecar(of: entry) } catch { return nil }
    }

    /// Returns true if the entry that a sidecar in this directory belongs to is absent.
    func isSidecarOrphaned(_ sidecar: [UInt8]) throws(StoreError) -> Bool {
        do throws(StoreError) {
            _ = try status(of: Array(sidecar.dropLast(".name".utf8.count)))
            return false
        } catch .system(.noSuchFileOrDirectory) {
            return true
        }
    }

    /// Returns all entries of this directory but `.` and `..`. They are read before any is changed, because
    /// getdents(2) may leave out entries of a directory that changes.
    func allEntries() throws(StoreError) -> [[UInt8]] {
        var reader = DirectoryReader(try openedForReading())
        var entries: [[UInt8]] = []
        while let entry = try reader.next() { entries.append(entry.name) }
        return entries
    }
}
