internal import CLinux
internal import FileSystem
internal import Glibc
package import LinuxSystem
internal import SystemPackage

/// The source of an hls view. Every path is relative to its root, and stays beneath it by openat2(2): `..` and links may
/// be in it as long as they do not lead out. Any thread.
package struct HlsTree: Sendable {
    let root: Descriptor

    /// - Parameter root: of the source, a directory.
    package init(_ root: Descriptor) {
        self.root = root
    }

    /// An O_PATH descriptor of what is there, links followed.
    func place(_ path: [UInt8]) throws(StoreError) -> Descriptor {
        try open(path, flags: linux_O_PATH, followLinks: true)
    }

    /// A regular file for reading, links followed.
    /// - Throws: `damaged` where it is something else.
    package func file(_ path: [UInt8]) throws(StoreError) -> Descriptor {
        // Looked at before it is opened: to open a fifo waits, and to open a device may do anything.
        let place = try place(path)
        guard try place.status().st_mode & S_IFMT == S_IFREG else { throw .damaged("no regular file") }
        return try place.reopened(flags: O_RDONLY | O_NONBLOCK | O_NOCTTY)
    }

    /// A directory for reading, no link on the way to it.
    func directory(_ path: [UInt8]) throws(StoreError) -> Descriptor {
        try open(path.isEmpty ? [UInt8(ascii: ".")] : path, flags: O_RDONLY | O_DIRECTORY, followLinks: false)
    }

    private func open(_ path: [UInt8], flags: Int32, followLinks: Bool) throws(StoreError) -> Descriptor {
        let opened = try withCString(path) { (path) throws(StoreError) -> Int32 in
            try retrying { linux_open_beneath(root.fd, path, flags, followLinks ? 1 : 0) }
        }
        return Descriptor(owning: opened)
    }
}
