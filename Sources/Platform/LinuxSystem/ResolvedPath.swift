internal import CLinux
internal import Glibc
package import SystemPackage

extension FilePath {
    package init(bytes: [UInt8]) {
        self = (bytes + [0]).withUnsafeBufferPointer { buffer in
            buffer.withMemoryRebound(to: CChar.self) { FilePath(platformString: Array($0)) }
        }
    }

    /// Returns the path of an entry of the directory at this path.
    package func appending(entry: LinuxSystem.Component) -> FilePath {
        let slash = UInt8(ascii: "/")
        return FilePath(bytes: bytes + (bytes.last == slash ? [] : [slash]) + entry.bytes)
    }

    /// The path's bytes, without a NUL.
    package var bytes: [UInt8] { withPlatformString { Array(UnsafeRawBufferPointer(start: $0, count: strlen($0))) } }
}

/// Absolute paths without links, in the kernel's spelling.
package enum ResolvedPath {
    /// Resolves a path (realpath(3)).
    /// - Throws: errno of realpath(3).
    package static func of(_ path: FilePath) throws(Errno) -> FilePath {
        let resolved = path.withPlatformString { realpath($0, nil) }
        guard let resolved else { throw currentErrno() }
        defer { free(resolved) }
        return FilePath(platformString: resolved)
    }

    /// Resolves a mountpoint's path, without access to the mount there, which may be dead or hang.
    /// - Throws: errno of realpath(3) for the directory above.
    package static func ofMountpoint(_ path: FilePath) throws(Errno) -> FilePath {
        guard let name = path.lastComponent, name.kind == .regular else { return try of(path) }
        let parent = path.removingLastComponent()
        return try of(parent.isEmpty ? "." : parent).appending(name)
    }
}

extension Descriptor {
    /// Returns the kernel's path of an open directory (proc_pid_fd(5)).
    /// - Throws: `.system` with errno.
    package func kernelPath() throws(StoreError) -> FilePath {
        let descriptors = try Descriptor(path: "/proc/self/fd", flags: O_RDONLY | O_DIRECTORY)
        return FilePath(bytes: try descriptors.linkTarget(of: Component(Array("\(fd)".utf8))))
    }

    /// Returns true if this directory is `other` or somewhere below it.
    /// - Throws: `.system` with errno.
    package func isInside(_ other: Descriptor) throws(StoreError) -> Bool {
        let wanted = FileIdentity(try other.status())
        var (current, identity) = (self, FileIdentity(try status()))
        while identity != wanted {
            let parent = try current.parent(flags: linux_O_PATH)
            let above = FileIdentity(try parent.status())
            if above == identity { return false }
            (current, identity) = (parent, above)
        }
        return true
    }
}
