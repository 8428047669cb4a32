internal import CLinux
package import Glibc
internal import LinuxSystem

/// The owner of a new object, if that is not the daemon's own user. Only root can make objects for others.
package struct Owner: Sendable {
    package var uid: uid_t
    package var gid: gid_t

    /// The owner to set for a caller. Nil if the daemon's objects have the right owner from the start.
    package static func needed(uid: uid_t, gid: gid_t) -> Owner? {
        guard geteuid() == 0, uid != geteuid() || gid != getegid() else { return nil }
        return Owner(uid: uid, gid: gid)
    }

    /// fchown(2) of a new object in a directory. Keeps the set-id bits, which a change of owner clears.
    /// - Parameter object: opened, or pinned with O_PATH.
    func apply(to object: Descriptor, in directory: Descriptor) throws(StoreError) {
        let (parent, made) = (try directory.status(), try object.status())
        // The store sets the directory's group if the directory is setgid, or mounted with grpid.
        let group = parent.st_mode & S_ISGID != 0 || made.st_gid != getegid() ? made.st_gid : gid
        try retrying { fchownat(object.fd, "", uid, group, linux_AT_EMPTY_PATH) }
        if made.st_mode & S_IFMT != S_IFLNK && made.st_mode & (S_ISUID | S_ISGID) != 0 {
            try object.changePinnedMode(to: made.st_mode & 0o7777)
        }
    }
}

extension Owner {
    /// The owner of an object.
    init(_ status: stat) { self.init(uid: status.st_uid, gid: status.st_gid) }
}
