internal import CLinux
internal import Glibc
internal import LinuxSystem
internal import SystemPackage

/// `vaultfs.lock`: the file locked by a `WriterLock`, with the record of the writer (FileFormat, The lock file).
enum WriterLockFile {
    static let entry: Component = "vaultfs.lock"
    /// The file's content without a writer.
    static let noWriter = Array("\n".utf8)
    /// The file's content after a writer with a clean end that did not complete the remains of an earlier unclean one.
    static let incomplete = Array("incomplete\n".utf8)
    /// The offset of the locked byte. SQLite locks the same one, so file servers know locks there.
    private static let lockedByte: Int64 = 0x4000_0000
    /// The error if the name leads to another file than the locked one.
    static let moved = StoreError.system(.staleNFSFileHandle)

    /// Opens the file. Makes it for a writer.
    /// - Returns: nil if a reader finds no file.
    static func open(_ root: Descriptor, _ sharing: VaultDirectory.Sharing) throws(StoreError) -> Descriptor? {
        do throws(StoreError) {
            let file = try openExisting(root, flags: sharing == .exclusive ? O_RDWR | O_CREAT : O_RDONLY)
            // Set the owner, because a file made by root's mount must not lock out the vault's owner.
            if sharing == .exclusive { try file.giveToOwner(of: root) }
            return file
        } catch .system(.noSuchFileOrDirectory) where sharing == .shared { return nil }
    }

    static func openExisting(_ root: Descriptor, flags: Int32) throws(StoreError) -> Descriptor {
        let file = try Descriptor(at: root, entry, flags: flags | O_NONBLOCK, mode: 0o644)
        let status = try file.status()
        guard status.st_mode & S_IFMT == S_IFREG, status.st_nlink == 1 else {
            throw .damaged("vaultfs.lock is not a regular file with one name")
        }
        return file
    }

    /// Locks one byte, far past the record, because if locks are mandatory (SMB), a locked record would be unreadable
    /// for others. The lock of an older release, on the whole file, conflicts with this one.
    static func lock(_ file: Descriptor, _ type: Int32) throws(StoreError) {
        do throws(StoreError) {
            try retrying { linux_lock_bytes(file.fd, type, lockedByte, 1) }
        } catch .system(.permissionDenied) {
            throw .system(.wouldBlock)
        }
    }

    /// Unlocks and closes the file. Closing alone is not enough, because another thread's forked child has the
    /// descriptor, and with it the lock, until its exec(2).
    static func drop(_ file: inout Descriptor?) {
        if let file { _ = linux_lock_bytes(file.fd, F_UNLCK, lockedByte, 1) }
        file = nil
    }

    /// Returns the record in the file, or nil if there is none.
    static func record(in root: Descriptor) -> WriterRecord? { content(in: root).flatMap { WriterRecord(parsing: $0) } }

    static func content(in root: Descriptor) -> [UInt8]? {
        (try? Descriptor(at: root, entry, flags: O_RDONLY | O_NONBLOCK)).flatMap { try? read($0) }
    }

    /// Returns true after an unclean end of the last writer, or of an earlier one whose remains are not completed.
    /// Meaningless while a writer has the vault, because its record is in the file.
    static func isUnclean(_ root: Descriptor) -> Bool { content(in: root).map { isUnclean($0) } ?? false }

    /// Returns true if the last writer has recorded a clean end, with everything in place. False without such a record.
    static func isClean(_ root: Descriptor) -> Bool { content(in: root) == noWriter }

    /// Returns true unless the content is empty (a new file) or a single LF. Only an unclean end leaves anything else.
    static func isUnclean(_ content: [UInt8]) -> Bool { !content.isEmpty && content != noWriter }

    /// Returns the content of the file to which the name leads. Opens it again, because some FUSE file systems use only
    /// the path.
    /// - Throws: `moved` if it is not the locked file.
    static func read(inPlaceOf file: Descriptor, root: Descriptor) throws(StoreError) -> [UInt8] {
        let named = try Descriptor(at: root, entry, flags: O_RDONLY | O_NONBLOCK)
        guard try FileIdentity(named.status()) == FileIdentity(file.status()) else { throw moved }
        return try read(named)
    }

    static func read(_ file: Descriptor) throws(StoreError) -> [UInt8] {
        // Drop its pages, because the page cache may be older than the store.
        file.dropPages()
        return try file.read(at: 0, count: WriterRecord.maximumSize + 1)
    }

    /// Writes the content in place. Emptying the file first would need new space, but a vault on a full disk must still
    /// be mountable, so that files can be removed.
    static func write(_ bytes: [UInt8], to file: Descriptor) throws(StoreError) {
        try file.write(bytes, at: 0)
        try file.truncate(to: UInt64(bytes.count))
    }
}
