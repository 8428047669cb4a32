internal import CLinux
internal import Glibc

/// A reader of a backing directory (getdents64(2)), which keeps the store's own offsets. One thread at a time.
package struct DirectoryReader {
    package struct Entry {
        /// The name, also of `.` and `..`, which are not components.
        package var name: [UInt8]
        package var inode: UInt64
        /// The type, one of DT_*, as reported by the store.
        package var type: UInt8
        /// The offset of the next entry, as of telldir(3).
        package var nextOffset: Int64

        /// Returns the name. Nil for `.` and `..`.
        /// - Throws: `.damaged` for a name with a slash, which the kernel forbids to file systems.
        package func component() throws(StoreError) -> Component? {
            if let component = try? Component(name) { return component }
            if !name.isEmpty, name.allSatisfy({ $0 == UInt8(ascii: ".") }) { return nil }
            throw .damaged("directory: an entry has a name that leads elsewhere")
        }
    }

    private static let bufferSize = 32 << 10

    package let directory: Descriptor
    private var buffer: [UInt8] = []
    private var position = 0
    /// The offset of the next entry, as of telldir(3).
    private var offset: Int64 = 0
    /// The type of the last entry, one of DT_*, as reported by the store.
    package private(set) var type = UInt8(DT_UNKNOWN)
    /// `position` and `offset` of the last entry, which is still in the buffer.
    private var last: (position: Int, offset: Int64) = (0, 0)

    /// - Parameter directory: open for reading, at its beginning.
    package init(_ directory: Descriptor) { self.directory = directory }

    /// Seeks to an entry's `nextOffset`, or to 0. The following entries are read again.
    /// - Throws: `.system` with errno.
    package mutating func seek(to newOffset: Int64) throws(StoreError) {
        if newOffset == offset && newOffset != 0 { return }
        try retrying { lseek(directory.fd, off_t(newOffset), SEEK_SET) }
        buffer = []
        position = 0
        offset = newOffset
        last = (position, offset)
    }

    /// Puts back the last entry, so that `next` returns it again. Not twice, nor after the end or a `seek`.
    package mutating func putBack() { (position, offset) = last }

    /// Returns the name of the next entry other than `.` and `..`. Nil at the end.
    /// - Throws: `.system` with errno; `.damaged` for a name with a slash, which the kernel forbids to file systems.
    package mutating func next() throws(StoreError) -> Component? {
        while let entry = try nextWithDots() {
            if let component = try entry.component() { return component }
        }
        return nil
    }

    /// Returns the next entry, including `.` and `..`. Nil at the end.
    /// - Throws: `.system` with errno.
    package mutating func nextWithDots() throws(StoreError) -> Entry? {
        if position >= buffer.count {
            buffer = try fill()
            position = 0
            if buffer.isEmpty { return nil }
        }
        let parsed = buffer.withUnsafeBytes { bytes -> (Entry, Int)? in
            // struct linux_dirent64, getdents(2): u64 d_ino, s64 d_off, u16 d_reclen, u8 d_type, char d_name[]
            let rest = bytes.slice(position...)
            guard rest.count >= 20 else { return nil }
            let size = Int(rest.loadUnaligned(fromByteOffset: 16, as: UInt16.self))
            guard size >= 20, size <= rest.count else { return nil }
            let entry = Entry(
                name: Array(rest[19..<size].prefix { $0 != 0 }), inode: rest.loadUnaligned(as: UInt64.self),
                type: rest[18], nextOffset: rest.loadUnaligned(fromByteOffset: 8, as: Int64.self))
            return (entry, size)
        }
        guard let (entry, size) = parsed else { throw .damaged("directory: an entry does not parse") }
        last = (position, offset)
        position += size
        offset = entry.nextOffset
        type = entry.type
        return entry
    }

    /// Reads the next entries (getdents64(2)). Empty at the end.
    private func fill() throws(StoreError) -> [UInt8] {
        var result: Result<Int, StoreError> = .success(0)
        // Most directories are small, so zeroing the whole buffer would cost more than the call.
        let bytes = [UInt8](unsafeUninitializedCapacity: Self.bufferSize) { bytes, count in
            result = Result { () throws(StoreError) in
                try retrying { linux_getdents64(directory.fd, bytes.baseAddress, bytes.count) }
            }
            count = (try? result.get()) ?? 0
        }
        _ = try result.get()
        return bytes
    }
}
