internal import CLinux
internal import Glibc
internal import Synchronization
package import SystemPackage

/// The type of a file system: statfs(2)'s f_type, from linux/magic.h and the file systems' sources.
package struct FileSystemType: Hashable, Sendable {
    private let magic: UInt64

    private init(_ magic: UInt64) { self.magic = magic }

    /// The type of the file system of an open file or directory.
    package init(of descriptor: Descriptor) { magic = linux_filesystem_type(descriptor.fd) }

    /// The type of the file system at a path.
    package init(at path: FilePath) { magic = path.withPlatformString { linux_filesystem_type_at($0) } }

    package static let fuse = FileSystemType(0x6573_5546)
    package static let nfs = FileSystemType(0x6969)
    package static let overlay = FileSystemType(0x794C_7630)

    /// ext2 to ext4, XFS, Btrfs, tmpfs.
    private static let withChangeTimes = [0xEF53, 0x5846_5342, 0x9123_683E, 0x0102_1994].map { FileSystemType($0) }
    /// Also F2FS, bcachefs, ZFS.
    private static let local = withChangeTimes + [0xF2F5_2010, 0xCA45_1A4E, 0x2FC1_2FC1].map { FileSystemType($0) }
    /// overlayfs, ramfs, JFS, FAT, exFAT, squashfs, EROFS, ISO 9660.
    private static let otherLocal =
        [overlay]
        + [0x8584_58F6, 0x3153_464A, 0x4D44, 0x2011_BAB0, 0x7371_7368, 0xE0F5_E1E2, 0x9660].map { FileSystemType($0) }
    /// FAT, exFAT, NTFS (ntfs3).
    private static let modeless = [0x4D44, 0x2011_BAB0, 0x7366_746E].map { FileSystemType($0) }
    /// NFS, FUSE (GlusterFS, sshfs, …), SMB, SMB2, CephFS, 9p, AFS, Lustre, GFS2, OCFS2.
    private static let remote =
        [nfs, fuse]
        + [0xFF53_4D42, 0xFE53_4D42, 0x00C3_6400, 0x0102_1997, 0x5346_414F, 0x0BD0_0BD0, 0x0116_1970, 0x7461_636F]
        .map { FileSystemType($0) }

    /// True if a directory has one device and one inode number while it is open, through whatever mount it is reached.
    /// In Btrfs a snapshot has a device of its own.
    package var hasLocalIdentities: Bool { Self.local.contains(self) }

    /// True if another machine keeps the file system's locks, or may, so that a held lock can be lost.
    package var isRemote: Bool { Self.remote.contains(self) }

    /// The devices examined so far: true for one with a remote file system.
    private static let remoteDevices = Mutex<[dev_t: Bool]>([:])

    /// Returns true if an open file is on a remote file system. Asks the kernel once for each device.
    /// - Parameter status: the file's, from fstat(2).
    static func isRemote(_ file: Descriptor, _ status: stat) -> Bool {
        if let known = remoteDevices.withLock({ $0[status.st_dev] }) { return known }
        // Ask without holding the mutex, because a server may not answer.
        let isRemote = FileSystemType(of: file).isRemote
        remoteDevices.withLock { $0[status.st_dev] = isRemote }
        return isRemote
    }

    /// True if files have no modes of their own, so that mount options decide who can read them.
    package var isModeless: Bool { Self.modeless.contains(self) }

    /// True if inotify reports every change, because changes come only from this machine. False if the type is unknown.
    package var reportsAllChanges: Bool { Self.local.contains(self) || Self.otherLocal.contains(self) }

    /// True if each change of an inode gives it a new ctime by this machine's clock: ext4, XFS, Btrfs, tmpfs. F2FS did
    /// not before Linux 6.6 for extended attributes (commit 8874ad7dae8d), and others are untried.
    package var keepsChangeTimes: Bool { Self.withChangeTimes.contains(self) }
}
