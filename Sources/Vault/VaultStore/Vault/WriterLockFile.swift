internal import CLinux
internal import Glibc
internal import LinuxSystem
internal import SystemPackage

/// `vaultfs.lock`: the file that a `WriterLock` locks, with the record of the writer (FileFormat, The lock file).
enum WriterLockFile {
    static let entry: Component = "vaultfs.lock"
    /// The file's content while nobody writes the vault.
    static let noWriter = Array("\n".utf8)
    /// The file's content after a writer that ended properly, but did not complete the remains of an earlier unclean
    /// end.
    static let incomplete = Array("incomplete\n".utf8)
    /// The offset of the byte that is locked. SQLite locks the same one, so file servers know locks there.
    private static let lockedByte: Int64 = 0x4000_0000
    /// The name leads to another file than the locked one.
    static let moved = StoreError.system(.staleNFSFileHandle)

    /// Opens the file. A writer also makes it.
    /// - Returns: nil if a reader finds no file.
    static func open(_ root: Descriptor, _ sharing: VaultDirectory.Sharing) throws(StoreError) -> Descriptor? {
        if sharing == .exclusive { return try makeFile(in: root) }
        do throws(StoreError) {
            return try openExisting(root, flags: O_RDONLY)
        } catch .system(.noSuchFileOrDirectory) { return nil }
    }

    /// Opens the file for writing. Makes it if it is absent.
    @discardableResult
    static func makeFile(in root: Descriptor) throws(StoreError) -> Descriptor {
        let file = try openExisting(root, flags: O_RDWR | O_CREAT)
        // A file made by root's mount must not lock out the vault's owner.
        try file.giveToOwner(of: root)
        return file
    }

    static func openExisting(_ root: Descriptor, flags: Int32) throws(StoreError) -> Descriptor {
        let file = try Descriptor(at: root, entry, flags: flags | O_NONBLOCK, mode: 0o644)
        let status = try file.status()
        guard status.st_mode & S_IFMT == S_IFREG, status.st_nlink == 1 else {
            throw .damaged("vaultfs.lock is not a regular file with one name")
        }
        return file
    }

    /// Takes the lock: one byte, far past the record. Where locks are mandatory (SMB), nobody else could read a locked record. The
    /// lock of an older release, on the whole file, conflicts with it.
    static func lock(_ file: Descriptor, _ type: Int32) throws(StoreError) {
        do throws(StoreError) {
            try retrying { linux_lock_bytes(file.fd, type, lockedByte, 1) }
        } catch .system(.permissionDenied) {
            throw .system(.wouldBlock)
        }
    }

    /// Unlocks and closes the file. Closing it is not enough: a child that another thread has just forked has the
    /// descriptor, and with it the lock, until its exec(2).
    static func drop(_ file: inout Descriptor?) {
        if let file { _ = linux_lock_bytes(file.fd, F_UNLCK, lockedByte, 1) }
        file = nil
    }

    /// The record in the file. Nil if there is none.
    static func record(in root: Descriptor) -> WriterRecord? { content(in: root).flatMap { WriterRecord(parsing: $0) } }

    static func content(in root: Descriptor) -> [UInt8]? {
        (try? Descriptor(at: root, entry, flags: O_RDONLY | O_NONBLOCK)).flatMap { try? read($0) }
    }

    /// Returns true if the last writer did not end properly, or if an earlier one did not and its remains were not
    /// completed since. Means nothing while a writer has the vault, because that writer's record is in the file.
    static func isUnclean(_ root: Descriptor) -> Bool { content(in: root).map { isUnclean($0) } ?? false }

    /// Returns true if the last writer has noted that everything is in place. A file that is absent or was just made does not
    /// say that.
    static func isClean(_ root: Descriptor) -> Bool { content(in: root) == noWriter }

    /// Returns true unless the content is empty or a single LF. An empty file was just made. Only a writer that did
    /// not end properly leaves anything else.
    static func isUnclean(_ content: [UInt8]) -> Bool { !content.isEmpty && content != noWriter }

    /// Returns the content of the file that the name leads to. It is opened again, because some FUSE file systems look
    /// only at the path.
    /// - Throws: `moved` if that is not the locked file.
    static func read(inPlaceOf file: Descriptor, root: Descriptor) throws(StoreError) -> [UInt8] {
        let named = try Descriptor(at: root, entry, flags: O_RDONLY | O_NONBLOCK)
        let (status, locked) = (try named.status(), try file.status())
        guard status.st_dev == locked.st_dev, status.st_ino == locked.st_ino else { throw moved }
        return try read(named)
    }

    static func read(_ file: Descriptor) throws(StoreError) -> [UInt8] {
        // The page cache may be older than the store.
        file.dropPages()
        return try file.read(at: 0, count: WriterRecord.maximumSize + 1)
    }

    /// Writes the content in place. A full disk has no room for a file that was emptied first, and a vault on it must
    /// still be mountable, so that files can be removed.
    static func write(_ bytes: [UInt8], to file: Descriptor) throws(StoreError) {
        try file.write(bytes, at: 0)
        try file.truncate(to: UInt64(bytes.count))
    }
}
