internal import CLinux
internal import LinuxSystem

/// Device and inode number of a vault's root directory, as far as they identify the vault on this machine. They tell a
/// copy of a vault, with the copy of a living writer's record in it, from the writer's own vault on another path.
struct RootIdentity: Equatable {
    /// 0 if other mounts of the same store have other numbers, or if unknown.
    let device: UInt64
    /// 0 if other mounts of the same store may have other numbers, or if unknown.
    let inode: UInt64

    static let unknown = RootIdentity(device: 0, inode: 0)

    /// statfs(2): ext2 to ext4, XFS, Btrfs, tmpfs, F2FS, bcachefs, ZFS. A directory has one device and one inode number
    /// while it is open, by whatever mount it is reached. In Btrfs a snapshot has a device of its own.
    private static let localTypes: Set<UInt64> = [
        0xEF53, 0x5846_5342, 0x9123_683E, 0x0102_1994, 0xF2F5_2010, 0xCA45_1A4E, 0x2FC1_2FC1,
    ]
    /// The server's inode number is that of all clients (RFC 8881, fileid). Each mount has a device of its own.
    private static let nfsType: UInt64 = 0x6969

    init(device: UInt64, inode: UInt64) { (self.device, self.inode) = (device, inode) }

    /// Other file systems are not identified: FUSE and overlayfs may show one directory under several numbers.
    init(of root: Descriptor) {
        let type = linux_filesystem_type(root.fd)
        guard let identity = (try? root.status()).map(FileIdentity.init) else {
            self = .unknown
            return
        }
        if Self.localTypes.contains(type) {
            self.init(device: identity.device, inode: identity.inode)
        } else {
            self.init(device: 0, inode: type == Self.nfsType ? identity.inode : 0)
        }
    }

    /// True if the two are certainly the roots of different vaults. False in doubt.
    func isCertainlyOther(than other: RootIdentity) -> Bool {
        func differ(_ numbers: KeyPath<RootIdentity, UInt64>) -> Bool {
            self[keyPath: numbers] != 0 && other[keyPath: numbers] != 0
                && self[keyPath: numbers] != other[keyPath: numbers]
        }
        return differ(\.inode) || differ(\.device)
    }
}
