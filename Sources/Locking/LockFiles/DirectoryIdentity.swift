internal import CLinux
internal import Glibc
internal import SystemPackage

/// Which directory a path led to at one moment: numbers that another directory in its place does not have.
struct DirectoryIdentity: Equatable {
    let device: UInt64
    let inode: UInt64
    /// Nanoseconds since 1970, 0 where the file system does not tell. ext4 gives the inode number of a removed directory
    /// to the next one made, so that device and inode do not tell them apart.
    let birth: UInt64

    init(device: UInt64, inode: UInt64, birth: UInt64) {
        (self.device, self.inode, self.birth) = (device, inode, birth)
    }

    init(_ identity: linux_file_identity) {
        self.init(device: identity.device, inode: identity.inode, birth: identity.birth)
    }

    /// The directory at `path`, and whether this user owns it.
    /// - Throws: `noDirectory`, `notDirectory`, `unsafeDirectory`, `system`.
    static func ofSafeDirectory(at path: FilePath) throws(LockFileError) -> (identity: Self, isOurs: Bool) {
        var found = linux_file_identity()
        guard path.withPlatformString({ linux_identify($0, &found) }) == 0 else {
            switch errno {
            case ENOENT: throw .noDirectory(path)
            case ENOTDIR: throw .notDirectory(path)
            default: throw .system(Errno(rawValue: errno), "cannot look at", path)
            }
        }
        guard found.mode & S_IFMT == S_IFDIR else { throw .notDirectory(path) }
        let user = geteuid()
        guard found.owner == user || found.owner == 0 else {
            throw .unsafeDirectory(path, "it belongs to user \(found.owner)")
        }
        // Where there is an ACL, the group bits are its mask: no named user or group has more (acl(5)).
        guard found.mode & (S_IWGRP | S_IWOTH) == 0 else {
            throw .unsafeDirectory(path, "others can write in it (mode \(String(found.mode & 0o7777, radix: 8)))")
        }
        return (Self(found), found.owner == user)
    }
}
