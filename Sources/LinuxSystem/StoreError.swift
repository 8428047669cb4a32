internal import CLinux
internal import Glibc
internal import Synchronization
package import SystemPackage
package import VaultCrypto

/// Why an operation on the backing store failed.
package enum StoreError: Error, Equatable, Sendable {
    /// A system call on the backing store failed.
    case system(Errno)
    /// What is on disk does not authenticate or is not laid out as format 1 says; where and why.
    case damaged(String)
    /// libcrypto itself failed.
    case crypto(String)

    package init(_ error: CryptoError) {
        switch error {
        case .doesNotAuthenticate: self = .damaged("does not authenticate")
        case .library(let operation): self = .crypto("\(operation) failed")
        case .invalidInput(let reason): self = .crypto(reason)
        case .keyForgotten: self = .locked
        }
    }

    /// What a locked object answers: "Required key not available", as the kernel's fscrypt does.
    package static let locked = StoreError.system(Errno(rawValue: ENOKEY))

    /// What it answers while it is locked because the right to open it has ended: "Key has expired".
    package static let expired = StoreError.system(Errno(rawValue: EKEYEXPIRED))

    /// What to tell a program: damage is `EIO`.
    package var errno: Errno {
        switch self {
        case .system(let errno): errno
        case .damaged, .crypto: .ioError
        }
    }
}
