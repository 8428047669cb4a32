internal import CLinux
internal import Glibc
package import LinuxSystem
internal import SystemPackage

/// The source of an hls view. Paths are relative to its root. They can contain `..` and links, but cannot leave the root
/// (openat2(2)). Any thread.
package struct HlsTree: Sendable {
    let root: Descriptor

    /// An O_PATH descriptor. Follows links.
    func object(_ path: [UInt8]) throws(StoreError) -> Descriptor {
        try open(path, flags: linux_O_PATH, followLinks: true)
    }

    /// A regular file, open for reading. Follows links.
    /// - Throws: `damaged` if it is not a regular file.
    package func file(_ path: [UInt8]) throws(StoreError) -> Descriptor {
        try object(path).openedRegularFile()
    }

    /// A directory, open for reading. Follows no links.
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
