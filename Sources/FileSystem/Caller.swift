package import Glibc

/// The user and groups of a program that makes a request.
package struct Caller: Sendable {
    package var uid: uid_t
    package var gid: gid_t

    /// The supplementary groups, if they were requested.
    package var groups: [gid_t]

    package init(uid: uid_t, gid: gid_t, groups: [gid_t] = []) {
        self.uid = uid
        self.gid = gid
        self.groups = groups
    }
}
