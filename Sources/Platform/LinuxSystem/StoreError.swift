internal import Glibc
package import SystemPackage

/// An error of the backing store. System calls throw it instead of `Errno`, because typed throws do not convert and
/// nearly all callers can fail for the other reasons too.
package enum StoreError: Error, Equatable, Sendable {
    /// A system call failed.
    case system(Errno)
    /// vaultfs itself refuses, or has already reported this failure, so the store has not failed.
    case refused(Errno)
    /// A system call failed for lack of something: space, descriptors, permission, an answer. Nothing is damaged or
    /// changed. The text names the failure and the remedy.
    case unavailable(Errno, String)
    /// Stored bytes do not authenticate or break the format. The text names the object and the reason.
    case damaged(String)
    /// libcrypto failed.
    case crypto(String)

    /// "Required key not available": the error for a locked object, as in the kernel's fscrypt.
    package static let locked = StoreError.system(Errno(rawValue: ENOKEY))

    /// "Key has expired": the error for an object whose lease has ended.
    package static let expired = StoreError.system(Errno(rawValue: EKEYEXPIRED))

    /// True if a system call failed because the store has no room.
    package var isNoSpace: Bool { if case .system(let errno) = self { errno.isNoSpace } else { false } }

    /// The error number for the calling program. Damage is `EIO`.
    package var errno: Errno {
        switch self {
        case .system(let errno), .refused(let errno), .unavailable(let errno, _): errno
        case .damaged, .crypto: .ioError
        }
    }

    /// A message for people, with the reason of damage instead of `EIO`.
    package var reason: String {
        switch self {
        case .system(let errno), .refused(let errno): "\(errno)"
        case .unavailable(_, let reason), .damaged(let reason), .crypto(let reason): reason
        }
    }
}

extension Errno {
    /// True if the store has no room: the disk is full, or the quota of the user or the directory is used up.
    package var isNoSpace: Bool { self == .noSpace || self == .diskQuotaExceeded }
}
