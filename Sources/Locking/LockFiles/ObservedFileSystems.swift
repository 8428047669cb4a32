internal import CLinux
internal import SystemPackage

/// The file systems whose every change inotify reports, since none comes from another machine or past the kernel: named
/// one by one, so that one nobody thought of (NFS, SMB, 9p, FUSE, AFS, Ceph, GFS2, OCFS2...) is looked at by the clock.
enum ObservedFileSystems {
    /// statfs(2)'s f_type, from linux/magic.h and the file systems' own sources.
    private static let types: Set<UInt64> = [
        0x0102_1994,  // tmpfs, devtmpfs
        0x8584_58F6,  // ramfs
        0xEF53,  // ext2, ext3, ext4
        0x5846_5342,  // xfs
        0x9123_683E,  // btrfs
        0xF2F5_2010,  // f2fs
        0xCA45_1A4E,  // bcachefs
        0x2FC1_2FC1,  // zfs
        0x3153_464A,  // jfs
        0x794C_7630,  // overlayfs
        0x4D44,  // vfat
        0x2011_BAB0,  // exfat
        0x7371_7368,  // squashfs
        0xE0F5_E1E2,  // erofs
        0x9660,  // iso9660
    ]

    /// Whether all changes in the directory at `path` are seen; false where that cannot be told.
    static func contain(_ path: FilePath) -> Bool {
        types.contains(path.withPlatformString { linux_filesystem_type_at($0) })
    }
}
