internal import CLinux
internal import FileSystem
internal import Glibc
package import LinuxSystem
internal import SystemPackage

extension Descriptor {
    /// An O_PATH descriptor of what is at `path` inside the tree `root`, the way to it through directories only: no link
    /// is followed. To be looked at before it is opened: to open a fifo waits, and to open a device may do anything.
    /// - Throws: `invalidArgument` for an empty path and one with `..`.
    package static func place(of path: [UInt8], in root: Descriptor) throws(StoreError) -> Descriptor {
        let components = path.split(separator: UInt8(ascii: "/")).map(Array.init)
        guard let last = components.last, !path.contains(0), !components.contains([UInt8]("..".utf8)) else {
            throw .system(.invalidArgument)
        }
        var directory = root
        for component in components.dropLast() {
            directory = try Descriptor(at: directory.fd, component, flags: linux_O_PATH | O_DIRECTORY)
        }
        return try Descriptor(at: directory.fd, last, flags: linux_O_PATH)
    }

    /// A regular file that an O_PATH descriptor leads to, opened for reading.
    /// - Throws: `damaged` where it is something else.
    package func openedRegularFile() throws(StoreError) -> Descriptor {
        switch try status().st_mode & S_IFMT {
        case S_IFREG: return try reopened(flags: O_RDONLY | O_NONBLOCK | O_NOCTTY)
        case S_IFLNK: throw .damaged("it is a symbolic link")
        case S_IFDIR: throw .damaged("it is a directory")
        default: throw .damaged("it is not a regular file")
        }
    }
}
