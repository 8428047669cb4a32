internal import CLinux
package import Glibc
package import LinuxSystem
internal import SystemPackage

/// Changes of attributes. Nil leaves an attribute as it is. A time's tv_nsec may be UTIME_NOW.
package struct AttributeChanges: Sendable {
    package var mode: mode_t?
    package var uid: uid_t?
    package var gid: gid_t?
    package var length: UInt64?
    package var accessTime: timespec?
    package var modificationTime: timespec?

    package init() {}
}

extension AttributeChanges {
    /// Applies all changes except the length.
    /// - Parameters:
    ///   - pinned: any descriptor of the object, also O_PATH.
    ///   - kind: S_IFMT of its mode.
    package func apply(to pinned: Descriptor, kind: mode_t) throws(StoreError) {
        if uid != nil || gid != nil {
            try retrying {
                fchownat(pinned.fd, "", uid ?? .max, gid ?? .max, linux_AT_EMPTY_PATH | AT_SYMLINK_NOFOLLOW)
            }
        }
        // After the owner, because changing that clears the set-id bits.
        if let mode {
            if kind == S_IFLNK { throw .system(.notSupported) }
            // fchmod(2) refuses an O_PATH descriptor. The link in /proc works.
            let path = "/proc/self/fd/\(pinned.fd)"
            try retrying { chmod(path, mode & 0o7777) }
        }
        if accessTime != nil || modificationTime != nil {
            let omit = timespec(tv_sec: 0, tv_nsec: linux_UTIME_OMIT)
            let times = [accessTime ?? omit, modificationTime ?? omit]
            try retrying { utimensat(pinned.fd, "", times, linux_AT_EMPTY_PATH) }
        }
    }
}
