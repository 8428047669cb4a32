internal import CLinux
internal import FileSystem
internal import Glibc
internal import LinuxSystem
internal import SystemPackage
package import ViewFormats

/// How much there is to export.
package enum ExportSurvey {
    /// Bytes of the source's files, which are about those of their plaintext. What cannot be read counts nothing. Any
    /// thread.
    package static func size(of source: ViewSource) -> UInt64 {
        if let name = source.onlyName { return (try? source.root.status(of: name)).map(size) ?? 0 }
        return size(below: source.root, depth: 0)
    }

    private static func size(below directory: Descriptor, depth: Int) -> UInt64 {
        guard depth <= ViewExporter.maximumDepth,
            let listed = try? Descriptor(at: directory.fd, [UInt8(ascii: ".")], flags: O_RDONLY | O_DIRECTORY)
        else { return 0 }
        var total: UInt64 = 0
        var reader = DirectoryReader(listed)
        while let entry = try? reader.next() {
            guard let status = try? listed.status(of: entry.name) else { continue }
            total &+= size(status)
            guard status.st_mode & S_IFMT == S_IFDIR,
                let below = try? Descriptor(at: listed.fd, entry.name, flags: linux_O_PATH | O_DIRECTORY)
            else { continue }
            total &+= size(below: below, depth: depth + 1)
        }
        return total
    }

    private static func size(_ status: stat) -> UInt64 {
        status.st_mode & S_IFMT == S_IFREG ? UInt64(max(0, status.st_size)) : 0
    }
}
