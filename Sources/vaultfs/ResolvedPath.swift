internal import Glibc
internal import LinuxSystem
internal import SystemPackage

/// Paths as the kernel spells them: absolute, without links.
enum ResolvedPath {
    /// realpath(3).
    static func of(_ path: FilePath) throws(Errno) -> FilePath {
        let resolved = path.withPlatformString { realpath($0, nil) }
        guard let resolved else { throw currentErrno() }
        defer { free(resolved) }
        return FilePath(platformString: resolved)
    }

    /// The same for a mountpoint, without asking what is mounted there: a dead or hanging mount can be named, too.
    static func ofMountpoint(_ path: FilePath) throws(Errno) -> FilePath {
        guard let name = path.lastComponent, name.kind == .regular else { return try of(path) }
        let parent = path.removingLastComponent()
        return try of(parent.isEmpty ? "." : parent).appending(name)
    }
}
