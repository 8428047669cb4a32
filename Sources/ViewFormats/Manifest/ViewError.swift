package import LinuxSystem
package import SystemPackage

/// Why a file of a view cannot be had. The texts are for people: lower case, no full stop, no secrets.
package enum ViewError: Error, Equatable, Sendable {
    /// The file is not what the view's format says: what is wrong with it.
    case malformed(String)
    /// No key could be had for it, and why.
    case noKey(String)
    /// Reading it failed, or it is locked.
    case store(StoreError)

    /// What to tell a program: a missing key is `ENOKEY`, what is malformed `EIO`.
    package var errno: Errno {
        switch self {
        case .malformed: .ioError
        case .noKey: StoreError.locked.errno
        case .store(let error): error.errno
        }
    }
}
