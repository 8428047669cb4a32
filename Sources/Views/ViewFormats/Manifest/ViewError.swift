internal import FileSystem
package import LinuxSystem
internal import StrictJSON
internal import VaultCrypto

/// The reason for which a file of a view cannot be read. Texts are for people: lower case, no full stop, no secrets.
package enum ViewError: Error, Equatable, Sendable {
    /// The file has another format than the view.
    case malformed(String)
    case noKey(String)
    /// A system call failed, or the view is locked.
    case store(StoreError)
}

extension ViewError {
    /// The text for people.
    package var reason: String {
        switch self {
        case .malformed(let text), .noKey(let text): text
        case .store(let error): error.reason
        }
    }
}

extension ViewError: JSONFailure {
    package init(malformed reason: String) { self = .malformed(reason) }

    /// Runs `body` and throws its error as a `ViewError`.
    @inline(__always)
    static func ofStore<Result>(_ body: @autoclosure () throws(StoreError) -> Result) throws(ViewError) -> Result {
        do throws(StoreError) { return try body() } catch { throw .store(error) }
    }

    /// Runs `body` and throws its error as a `ViewError`.
    @inline(__always)
    static func ofCrypto<Result>(_ body: @autoclosure () throws(CryptoError) -> Result) throws(ViewError) -> Result {
        do throws(CryptoError) { return try body() } catch { throw .store(StoreError(error)) }
    }
}
