package import Glibc

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
