internal import CLinux
package import Glibc
package import SystemPackage

/// Owns one file descriptor: closes it when the last reference goes. Any thread.
package final class Descriptor: Sendable {
    package let fd: Int32

    package init(owning fd: Int32) { self.fd = fd }

    deinit { close(fd) }

    /// open(2) of a path, following links, always close-on-exec.
    /// - Throws: `.system` with errno.
    package convenience init(path: FilePath, flags: Int32, mode: mode_t = 0) throws(StoreError) {
        self.init(owning: try retrying { path.withPlatformString { open($0, flags | O_CLOEXEC, mode) } })
    }

    /// Opens the same inode again with other flags. Works for a file without a name.
    /// Uses /proc/self/fd, whose links do not depend on a path on disk.
    /// - Throws: `.system` with errno.
    package func reopened(flags: Int32) throws(StoreError) -> Descriptor {
        let path = "/proc/self/fd/\(fd)"
        return Descriptor(owning: try retrying { open(path, flags | O_CLOEXEC) })
    }

    /// fstat(2).
    /// - Throws: `.system` with errno.
    package func status() throws(StoreError) -> stat {
        var result = stat()
        try retrying { fstat(fd, &result) }
        return result
    }

    /// access(2) of this object, which may be pinned with O_PATH, with the effective user's rights.
    package func checkAccess(_ mask: Int32) throws(StoreError) { try retrying { linux_check_access(fd, mask) } }

    /// Drops what the kernel has of the file, so that later reads ask the store. Pages with unwritten data stay.
    package func dropPages() { _ = posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED) }

    /// Drops it if another machine may have written the file since it was read. Opening the file does not do that
    /// everywhere: ceph-fuse has the kernel keep the pages then (FOPEN_KEEP_CACHE; seen on 16.2). Costs nothing on a
    /// local file system.
    /// - Parameter status: of this file, from fstat(2).
    package func dropOldPages(_ status: stat) { if FileSystemType.isRemote(self, status) { dropPages() } }

    /// pread(2) until `buffer` is full or the file ends. Returns the number of bytes read.
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

    /// preadv(2) of consecutive bytes until all buffers are full or the file ends. Returns the number of bytes read.
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
        // A signal can end it early, in any buffer.
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

    /// pwrite(2) of all of `buffer`. On failure some leading part may have been written.
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

    /// ftruncate(2).
    /// - Throws: `.system` with errno.
    package func truncate(to ciphertextSize: UInt64) throws(StoreError) {
        try retrying { ftruncate(fd, off_t(ciphertextSize)) }
    }

    /// fdatasync(2), or fsync(2) with the metadata.
    /// - Throws: `.system` with errno.
    package func synchronize(dataOnly: Bool) throws(StoreError) {
        try retrying { dataOnly ? fdatasync(fd) : fsync(fd) }
    }
}

extension Descriptor {
    /// pread(2) of up to `count` bytes.
    /// - Throws: `.system` with errno.
    package func read(at offset: UInt64, count: Int) throws(StoreError) -> [UInt8] {
        var bytes = [UInt8](repeating: 0, count: count)
        let size = try bytes.withMutableBytes { (buffer) throws(StoreError) in try read(at: offset, into: buffer) }
        bytes.removeLast(count - size)
        return bytes
    }

    /// pwrite(2) of all bytes.
    /// - Throws: `.system` with errno.
    package func write(_ bytes: [UInt8], at offset: UInt64) throws(StoreError) {
        try bytes.withBytes { (bytes) throws(StoreError) in try write(bytes, at: offset) }
    }

    /// read(2) to the end, from the current position. Nil if there are more than `limit` bytes.
    /// Works for files of /proc, whose size is 0.
    /// - Throws: `.system` with errno.
    package func readToEnd(limit: Int) throws(StoreError) -> [UInt8]? {
        var bytes: [UInt8] = []
        var piece = [UInt8](repeating: 0, count: 65536)
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
