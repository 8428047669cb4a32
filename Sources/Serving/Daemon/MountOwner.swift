package import Glibc
internal import LinuxSystem

/// The user whose daemon serves a mount, for messages.
package struct MountOwner {
    let userID: UInt32

    /// Returns nil for the user's own mount, and for root, who may use every mount.
    /// - Parameter user: the user who runs the command.
    package init?(of entry: MountTable.Entry, for user: uid_t = geteuid()) {
        guard user != 0, let userID = entry.userID, userID != user else { return nil }
        self.userID = userID
    }

    /// `mounted by bob: only bob or root can lock it`
    /// - Parameter action: the rest of "only they can", such as "lock it".
    package func refusal(to action: String) -> String {
        let name = Self.name(of: userID)
        return "mounted by \(name): only \(userID == 0 ? name : "\(name) or root") can \(action)"
    }

    /// Returns the user's name or, if there is none, `user 1000`.
    package static func name(of userID: UInt32) -> String {
        var entry = passwd()
        var found: UnsafeMutablePointer<passwd>?
        // A directory service may have long entries.
        var buffer = [CChar](repeating: 0, count: 64 << 10)
        return buffer.withUnsafeMutableBufferPointer { buffer in
            guard let start = buffer.baseAddress,
                getpwuid_r(userID, &entry, start, buffer.count, &found) == 0, found != nil, let name = entry.pw_name
            else { return "user \(userID)" }
            return String(cString: name).withoutControlCharacters
        }
    }
}
