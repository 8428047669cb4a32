import Glibc
import LinuxSystem
import Testing

/// A tmpfs of a few pages, for root only. It is detached right after the mount, so that it is removed with its last
/// descriptor.
final class SmallDisk {
    let path: String
    private let root: Descriptor

    init(size: Int) throws {
        let mountpoint = "/tmp/vaultfs-disk-\(getpid())-\(UInt32.random(in: 0...(.max)))"
        try #require(mkdir(mountpoint, 0o700) == 0)
        defer { rmdir(mountpoint) }
        try #require(mount("none", mountpoint, "tmpfs", 0, "size=\(size)") == 0)
        root = Descriptor(owning: open(mountpoint, O_RDONLY | O_DIRECTORY | O_CLOEXEC))
        try #require(umount2(mountpoint, CInt(MNT_DETACH)) == 0)
        path = "/proc/self/fd/\(root.fd)"
    }

    /// A file to fill the remaining space.
    struct Filler {
        let descriptor: Descriptor

        func extend() throws {
            let zeros = [UInt8](repeating: 0, count: 4096)
            var offset = UInt64(try descriptor.status().st_size)
            while true {
                do { try zeros.withUnsafeBytes { try descriptor.write($0, at: offset) } } catch { return }
                offset += 4096
            }
        }
    }

    func fill(leaving space: Int) throws -> Filler {
        var free = statvfs()
        try retrying { fstatvfs(root.fd, &free) }
        let size = Int(free.f_bfree) * Int(free.f_bsize) - space
        let file = try Descriptor(at: root, "filler", flags: O_RDWR | O_CREAT, mode: 0o600)
        try [UInt8](repeating: 1, count: size).withUnsafeBytes { try file.write($0, at: 0) }
        return Filler(descriptor: file)
    }
}
