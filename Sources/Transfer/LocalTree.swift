internal import CLinux
package import FileSystem
package import Glibc
package import LinuxSystem
internal import SystemPackage
internal import VaultStore

/// Real files. An item is an O_PATH descriptor, so that the attributes of a file closed to its own owner can be read.
package struct LocalTree<Workspace: WorkerBuffers>: TransferTree {
    package init() {}

    package func find(_ name: [UInt8], in directory: Descriptor) throws(StoreError) -> Descriptor? {
        do throws(StoreError) {
            return try Descriptor(at: directory.fd, name, flags: linux_O_PATH)
        } catch .system(.noSuchFileOrDirectory) {
            return nil
        }
    }

    package func status(of item: Descriptor) throws(StoreError) -> stat { try item.status() }

    package func list(_ directory: Descriptor) throws(StoreError) -> DirectoryReader {
        DirectoryReader(try Descriptor(at: directory.fd, [UInt8(ascii: ".")], flags: O_RDONLY | O_DIRECTORY))
    }

    package func next(_ listing: inout DirectoryReader) throws(StoreError) -> [UInt8]? { try listing.next()?.name }

    /// readlinkat(2) of the descriptor itself.
    package func linkTarget(of item: Descriptor) throws(StoreError) -> [UInt8] { try item.linkTarget(of: []) }

    package func attributeNames(of item: Descriptor) throws(StoreError) -> [[UInt8]] {
        do throws(StoreError) {
            return try ExtendedAttributes(item).names()
        } catch .system(.notSupported) {
            return []
        }
    }

    package func attribute(_ name: [UInt8], of item: Descriptor) throws(StoreError) -> [UInt8] {
        try ExtendedAttributes(item).value(of: name)
    }

    package func open(_ item: Descriptor, _ workspace: Workspace) throws(StoreError) -> Descriptor {
        // O_NONBLOCK and O_NOCTTY do nothing to a regular file.
        try item.reopened(flags: O_RDONLY | O_NONBLOCK | O_NOCTTY)
    }

    package func length(of content: Descriptor) throws(StoreError) -> UInt64 {
        UInt64(max(0, try content.status().st_size))
    }

    package func data(in content: Descriptor, from offset: UInt64) throws(StoreError) -> Range<UInt64>? {
        let status = try content.status()
        let size = UInt64(max(0, status.st_size))
        guard offset < size else { return nil }
        // A file without holes needs no lseek(2). st_blocks counts 512 bytes, stat(2).
        if status.st_blocks * 512 >= status.st_size { return offset..<size }
        let start = lseek(content.fd, off_t(offset), linux_SEEK_DATA)
        if start < 0 { return currentErrno() == .noSuchAddressOrDevice ? nil : offset..<size }
        let end = lseek(content.fd, start, linux_SEEK_HOLE)
        return UInt64(start)..<max(UInt64(start) + 1, end < 0 ? size : UInt64(end))
    }

    package func read(
        _ content: Descriptor, at offset: UInt64, into buffer: UnsafeMutableRawBufferPointer, _ workspace: Workspace
    ) throws(StoreError) -> Int {
        try content.read(at: offset, into: buffer)
    }

    package func forgetCached(_ content: Descriptor) {
        // posix_fadvise(2) is advice. A file system in memory has no other copy.
        _ = posix_fadvise(content.fd, 0, 0, POSIX_FADV_DONTNEED)
    }
}

extension Descriptor {
    /// True if this directory is `other` or somewhere below it.
    package func isInside(_ other: Descriptor) throws(StoreError) -> Bool {
        let wanted = try other.status()
        var current = self
        var status = try status()
        while true {
            if status.st_ino == wanted.st_ino && status.st_dev == wanted.st_dev { return true }
            let parent = try Descriptor(at: current.fd, Array("..".utf8), flags: linux_O_PATH | O_DIRECTORY)
            let above = try parent.status()
            if above.st_ino == status.st_ino && above.st_dev == status.st_dev { return false }
            (current, status) = (parent, above)
        }
    }
}
