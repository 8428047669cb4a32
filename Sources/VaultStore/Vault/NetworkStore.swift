internal import CLinux

/// File systems whose locks another machine keeps, or may: they can be lost while they are held.
enum NetworkStore {
    /// statfs(2): NFS, FUSE (GlusterFS, sshfs, …), SMB, SMB2, CephFS, 9p, AFS, Lustre, GFS2, OCFS2.
    private static let types: Set<UInt64> = [
        0x6969, 0x6573_5546, 0xFF53_4D42, 0xFE53_4D42, 0x00C3_6400, 0x0102_1997, 0x5346_414F, 0x0BD0_0BD0, 0x0116_1970,
        0x7461_636F,
    ]

    /// Whether the open file or directory lies on one.
    static func contains(_ fd: Int32) -> Bool { types.contains(linux_filesystem_type(fd)) }
}
