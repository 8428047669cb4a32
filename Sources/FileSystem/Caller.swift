package import Glibc

/// Who asks, for what is made: uid and gid of the new object's owner.
package struct Caller: Sendable {
    package var uid: uid_t
    package var gid: gid_t

    /// The supplementary groups, where they have been asked for.
    package var groups: [gid_t]

    package init(uid: uid_t, gid: gid_t, groups: [gid_t] = []) {
        self.uid = uid
        self.gid = gid
        self.groups = groups
    }
}
