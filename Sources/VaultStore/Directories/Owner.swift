internal import CLinux
internal import FileSystem
package import Glibc
internal import LinuxSystem
internal import Synchronization
internal import SystemPackage
internal import VaultCrypto
internal import VaultFormat

/// Who asks for a new object, where that is not the daemon's own user. Only root can make objects for others.
package struct Owner: Sendable {
    package var uid: uid_t
    package var gid: gid_t

    package init(uid: uid_t, gid: gid_t) {
        self.uid = uid
        self.gid = gid
    }

    /// The owner to set, or nil where what the daemon makes is right as it is.
    package static func needed(uid: uid_t, gid: gid_t) -> Owner? {
        guard geteuid() == 0, uid != geteuid() || gid != getegid() else { return nil }
        return Owner(uid: uid, gid: gid)
    }

    /// The group for a new object in a directory: the store has set the directory's own where it is setgid (or mounted
    /// with grpid), else it is the caller's.
    func group(in directory: stat, made: stat) -> gid_t {
        directory.st_mode & S_ISGID != 0 || made.st_gid != getegid() ? made.st_gid : gid
    }

    /// fchown(2) of a new file or directory, keeping the mode bits that a change of owner clears.
    func apply(to descriptor: Descriptor, in directory: Int32) throws(StoreError) {
        var parent = stat()
        try retrying { fstatat(directory, "", &parent, linux_AT_EMPTY_PATH) }
        let made = try descriptor.status()
        try retrying { fchown(descriptor.fd, uid, group(in: parent, made: made)) }
        if made.st_mode & (S_ISUID | S_ISGID) != 0 {
            try retrying { fchmod(descriptor.fd, made.st_mode & 0o7777) }
        }
    }

    /// The same for what cannot be opened: a link, a fifo, a device, a socket.
    func apply(toEntry entry: [UInt8], in directory: Int32) throws(StoreError) {
        var parent = stat()
        try retrying { fstatat(directory, "", &parent, linux_AT_EMPTY_PATH) }
        let pin = try Descriptor(at: directory, entry, flags: linux_O_PATH)
        let made = try pin.status()
        try retrying { fchownat(pin.fd, "", uid, group(in: parent, made: made), linux_AT_EMPTY_PATH) }
        if made.st_mode & S_IFMT != S_IFLNK && made.st_mode & (S_ISUID | S_ISGID) != 0 {
            try pin.changePinnedMode(to: made.st_mode & 0o7777)
        }
    }
}
