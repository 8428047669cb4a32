internal import CLinux
package import Glibc
package import LinuxSystem
internal import SystemPackage

/// The ciphertext of a view's file, open for reading. Any thread.
package struct SourceFile: Sendable {
    package let descriptor: Descriptor
    /// Bytes at the time of the open. Later bytes are never read.
    package let size: UInt64
    let identity: FileIdentity

    /// - Parameter status: the descriptor's status.
    package init(_ descriptor: Descriptor, _ status: stat) {
        self.descriptor = descriptor
        size = UInt64(max(0, status.st_size))
        identity = FileIdentity(status)
    }

    /// Takes the descriptor's status.
    init(_ descriptor: Descriptor) throws(StoreError) { self.init(descriptor, try descriptor.status()) }

    /// Fills the buffers, one after another, from a ciphertext offset (pread(2), preadv(2)).
    ///
    /// Throws `.malformed` if the file has been cut since the open and ends before.
    func read(
        at ciphertextOffset: UInt64, before: UnsafeMutableRawBufferPointer = .empty,
        into buffer: UnsafeMutableRawBufferPointer, after: UnsafeMutableRawBufferPointer = .empty
    ) throws(ViewError) {
        let had = try ViewError.ofStore(
            before.isEmpty && after.isEmpty
                ? descriptor.read(at: ciphertextOffset, into: buffer)
                : descriptor.read(at: ciphertextOffset, before: before, into: buffer, after: after))
        guard had == before.count + buffer.count + after.count else {
            let end = ciphertextOffset + UInt64(had)
            throw .malformed("the file ends after \(end) bytes, of the \(size) it had when it was opened")
        }
    }
}

extension Descriptor {
    /// Opens an O_PATH descriptor of the object at `path` inside the tree `root`. Follows no links. Check the object
    /// before you open it, because opening a fifo blocks, and opening a device can have side effects.
    /// - Throws: `invalidArgument` for an empty path, or a path with `..`.
    package convenience init(object path: [UInt8], in root: Descriptor) throws(StoreError) {
        var components: [Component] = []
        for part in path.split(separator: UInt8(ascii: "/")) where !part.elementsEqual(".".utf8) {
            components.append(try Component(Array(part)))
        }
        guard let last = components.last else { throw .system(.invalidArgument) }
        var directory = root
        for component in components.dropLast() {
            directory = try Descriptor(at: directory, component, flags: linux_O_PATH | O_DIRECTORY)
        }
        try self.init(at: directory, last, flags: linux_O_PATH)
    }

    /// Opens an object at a path from this directory, by default as an O_PATH descriptor. The path can contain `..` and
    /// links, but cannot leave the directory (openat2(2)).
    func opened(
        beneath path: [UInt8], flags: Int32 = linux_O_PATH, followsLinks: Bool = true
    ) throws(StoreError) -> Descriptor {
        let opened = try withCString(path) { (path) throws(StoreError) -> Int32 in
            try retrying { linux_open_beneath(fd, path, flags, followsLinks ? 1 : 0) }
        }
        return Descriptor(owning: opened)
    }

    /// Opens a regular file at a path from this directory for reading. Follows links within the directory.
    /// - Throws: `damaged` for any other object.
    func regularFile(beneath path: [UInt8]) throws(StoreError) -> Descriptor {
        try opened(beneath: path).openedRegularFile()
    }

    /// Opens a regular file as `regularFile`, and takes its size.
    /// - Parameter identity: of the file that the path must lead to. Nil for any file.
    /// - Throws: `damaged` for any other object, `ESTALE` for another file.
    func sourceFile(beneath path: [UInt8], _ identity: FileIdentity? = nil) throws(StoreError) -> SourceFile {
        let source = try SourceFile(regularFile(beneath: path))
        guard identity == nil || identity == source.identity else { throw .system(.staleNFSFileHandle) }
        return source
    }

    /// Opens the regular file of an O_PATH descriptor for reading.
    /// - Throws: `damaged` for any other object.
    package func openedRegularFile() throws(StoreError) -> Descriptor {
        switch try status().st_mode & S_IFMT {
        case S_IFREG: return try reopened(flags: O_RDONLY | O_NONBLOCK | O_NOCTTY)
        case S_IFLNK: throw .damaged("it is a symbolic link")
        case S_IFDIR: throw .damaged("it is a directory")
        default: throw .damaged("it is not a regular file")
        }
    }
}

/// Returns the path of a directory's entry. An empty directory path is the source itself.
package func joinedPath(_ directory: [UInt8], _ name: [UInt8]) -> [UInt8] {
    directory.isEmpty ? name : directory + [UInt8(ascii: "/")] + name
}
