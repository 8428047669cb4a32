package import LinuxSystem
internal import StrictJSON

/// Why a file of a view cannot be read. The texts are for people: lower case, no full stop, no secrets.
package enum ViewError: Error, Equatable, Sendable {
    /// The file does not have the view's format.
    case malformed(String)
    case noKey(String)
    /// A system call failed, or the view is locked.
    case store(StoreError)
}

extension ViewError: JSONFailure {
    package init(malformed reason: String) {
        self = .malformed(reason)
    }
}

extension StoreError {
    /// The reason without its class, for messages.
    package var reason: String {
        switch self {
        case .system(let errno): "\(errno)"
        case .damaged(let reason), .crypto(let reason): reason
        }
    }
}
