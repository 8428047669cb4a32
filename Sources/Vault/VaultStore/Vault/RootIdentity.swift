internal import LinuxSystem

/// Device and inode number of a vault's root directory, as far as they identify the vault on this machine. They
/// distinguish a copied vault, with a living writer's record in it, from the writer's own vault on another path.
struct RootIdentity: Equatable {
    /// 0 if other mounts of the same store have other numbers, or if unknown.
    let device: UInt64
    /// 0 if other mounts of the same store may have other numbers, or if unknown.
    let inode: UInt64

    static let unknown = RootIdentity(device: 0, inode: 0)

    /// Added to the device of an overlayfs, whose layers show one directory under several numbers. Unused by stat(2).
    static let overlay: UInt64 = 1 << 63

    init(device: UInt64, inode: UInt64) { (self.device, self.inode) = (device, inode) }

    /// Reads the identity. Other file systems get none, because FUSE may show one directory under several numbers.
    init(of root: Descriptor) {
        let (type, identity) = (FileSystemType(of: root), (try? root.status()).map(FileIdentity.init))
        self =
            switch (type, identity) {
            case (_, let identity?) where type.hasLocalIdentities:
                RootIdentity(device: identity.device, inode: identity.inode)
            case (.overlay, let identity?): RootIdentity(device: identity.device | Self.overlay, inode: identity.inode)
            // All NFS clients get the server's inode number (RFC 8881, fileid), but each mount has its own device.
            case (.nfs, let identity?): RootIdentity(device: 0, inode: identity.inode)
            default: .unknown
            }
    }

    /// Returns true if the two are certainly the roots of different vaults. False in doubt.
    func isCertainlyOther(than other: RootIdentity) -> Bool {
        func differ(_ number: UInt64, _ other: UInt64) -> Bool { number != 0 && other != 0 && number != other }
        let isOverlay = (device | other.device) & Self.overlay != 0
        let isOtherInode = differ(inode, other.inode)
        // In one overlayfs an open directory has one inode number (Documentation/filesystems/overlayfs.rst in Linux).
        return isOverlay ? device == other.device && isOtherInode : isOtherInode || differ(device, other.device)
    }
}
