internal import CLinux
package import Glibc
package import SystemPackage

/// The owner of one file descriptor, which it closes when its last reference is released. Any thread.
package final class Descriptor: Sendable {
    package let fd: Int32

    package init(owning fd: Int32) { self.fd = fd }

    deinit { close(fd) }

    /// Opens a path (open(2)), following links, always close-on-exec.
    /// - Throws: `.system` with errno.
    package convenience init(path: FilePath, flags: Int32, mode: mode_t = 0) throws(StoreError) {
        self.init(owning: try retrying { path.withPlatformString { open($0, flags | O_CLOEXEC, mode) } })
    }

    /// Opens the same inode again with other flags, even without a name: the links of /proc/self/fd do not depend on a
    /// path on disk.
    /// - Throws: `.system` with errno.
    package func reopened(flags: Int32) throws(StoreError) -> Descriptor {
        let path = "/proc/self/fd/\(fd)"
        return Descriptor(owning: try retrying { open(path, flags | O_CLOEXEC) })
    }

    /// Returns the status of the file (fstat(2)).
    /// - Throws: `.system` with errno.
    package func status() throws(StoreError) -> stat {
        var result = stat()
        try retrying { fstat(fd, &result) }
        return result
    }

    /// Checks access to this object, which may be pinned with O_PATH, with the effective user's rights (access(2)).
    /// - Throws: `.system` with errno, such as `EACCES`.
    package func checkAccess(_ mask: Int32) throws(StoreError) { try retrying { linux_check_access(fd, mask) } }

    /// Drops the kernel's pages of the file, so that later reads ask the store. Pages with unwritten data stay.
    package func dropPages() { _ = posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED) }

    /// Drops the pages if another machine may have written the file since it was read. Opening the file is not enough
    /// everywhere: ceph-fuse has the kernel keep the pages then (FOPEN_KEEP_CACHE; seen on 16.2). Costs nothing on a
    /// local file system.
    /// - Parameter status: the file's, from fstat(2).
    package func dropOldPages(_ status: stat) { if FileSystemType.isRemote(self, status) { dropPages() } }

    /// Reads until `buffer` is full or the file ends (pread(2)). Returns the number of bytes read.
    /// - Throws: `.system` with errno.
    package func read(at ciphertextOffset: UInt64, into buffer: UnsafeMutableRawBufferPointer) throws(StoreError) -> Int
    {
        var done = 0
        while done < buffer.count {
            let rest = buffer.slice(done...)
            let count = try retrying { pread(fd, rest.baseAddress, rest.count, off_t(ciphertextOffset) + off_t(done)) }
            if count == 0 { break }
            done += count
        }
        return done
    }

    /// Reads consecutive bytes until all buffers are full or the file ends (preadv(2)). Returns their number.
    /// - Throws: `.system` with errno.
    package func read(
        at ciphertextOffset: UInt64, before: UnsafeMutableRawBufferPointer, into buffer: UnsafeMutableRawBufferPointer,
        after: UnsafeMutableRawBufferPointer
    ) throws(StoreError) -> Int {
        let parts = (Self.vector(before), Self.vector(buffer), Self.vector(after))
        var done = try retrying {
            withUnsafeBytes(of: parts) {
                preadv(fd, $0.assumingMemoryBound(to: iovec.self).baseAddress, 3, off_t(ciphertextOffset))
            }
        }
        // A signal can end the call early, in any buffer.
        var start = 0
        func complete(_ buffer: UnsafeMutableRawBufferPointer) throws(StoreError) {
            defer { start += buffer.count }
            guard done < start + buffer.count, done >= start else { return }
            done += try read(at: ciphertextOffset + UInt64(done), into: buffer.slice((done - start)...))
        }
        try complete(before)
        try complete(buffer)
        try complete(after)
        return done
    }

    private static func vector(_ buffer: UnsafeMutableRawBufferPointer) -> iovec {
        iovec(iov_base: buffer.baseAddress, iov_len: buffer.count)
    }

    /// Writes all of `buffer` (pwrite(2)). On failure some leading part may have been written.
    /// - Throws: `.system` with errno.
    package func write(_ buffer: UnsafeRawBufferPointer, at ciphertextOffset: UInt64) throws(StoreError) {
        var done = 0
        while done < buffer.count {
            let rest = buffer.slice(done...)
            let count = try retrying { pwrite(fd, rest.baseAddress, rest.count, off_t(ciphertextOffset) + off_t(done)) }
            // pwrite(2) returns 0 for a non-empty buffer only if the store is full.
            if count == 0 { throw .system(.noSpace) }
            done += count
        }
    }

    /// Cuts or extends the file (ftruncate(2)).
    /// - Throws: `.system` with errno.
    package func truncate(to ciphertextSize: UInt64) throws(StoreError) {
        try retrying { ftruncate(fd, off_t(ciphertextSize)) }
    }

    /// Syncs the data (fdatasync(2)), or also the metadata (fsync(2)).
    /// - Throws: `.system` with errno.
    package func synchronize(dataOnly: Bool) throws(StoreError) {
        try retrying { dataOnly ? fdatasync(fd) : fsync(fd) }
    }
}

extension Descriptor {
    /// Reads up to `count` bytes (pread(2)).
    /// - Throws: `.system` with errno.
    package func read(at offset: UInt64, count: Int) throws(StoreError) -> [UInt8] {
        var bytes = [UInt8](repeating: 0, count: count)
        let size = try bytes.withMutableBytes { (buffer) throws(StoreError) in try read(at: offset, into: buffer) }
        bytes.removeLast(count - size)
        return bytes
    }

    /// Writes all bytes (pwrite(2)).
    /// - Throws: `.system` with errno.
    package func write(_ bytes: [UInt8], at offset: UInt64) throws(StoreError) {
        try bytes.withBytes { (bytes) throws(StoreError) in try write(bytes, at: offset) }
    }

    /// Reads to the end, from the current position (read(2)). Returns nil if there are more than `limit` bytes. Works
    /// for files of /proc, whose size is 0.
    /// - Throws: `.system` with errno.
    package func readToEnd(limit: Int) throws(StoreError) -> [UInt8]? {
        var bytes: [UInt8] = []
        var piece = [UInt8](repeating: 0, count: min(limit, 65535) + 1)
        while true {
            let count = try piece.withMutableBytes { (buffer) throws(StoreError) -> Int in
                try retrying { Glibc.read(fd, buffer.baseAddress, buffer.count) }
            }
            if count == 0 { return bytes }
            bytes += piece[..<count]
            if bytes.count > limit { return nil }
        }
    }
}
