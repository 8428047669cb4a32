package import SystemPackage

/// What a look at a lock file's path gave. Only `absent` means that it does not lock.
package enum LockFileState: Equatable, Sendable {
    /// Nothing is there, and its directory is the one it was.
    case absent
    /// Something is there: a file, a directory, a link that leads nowhere.
    case present
    /// Its directory is gone, or another one is in its place.
    case parentChanged
    /// The look failed: with EACCES, EIO and the like.
    case unknown(Errno)

    package var isLocked: Bool { self != .absent }
}
