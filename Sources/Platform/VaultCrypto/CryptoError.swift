internal import COpenSSL

package enum CryptoError: Error, Equatable {
    /// The data was not made under this key, or has been changed.
    case doesNotAuthenticate
    /// libcrypto or the kernel refused an operation that cannot fail for a reason in the data, such as for want of
    /// memory.
    case library(operation: String)
    /// The caller passed sizes or parameters that no operation accepts. The text names them.
    case invalidInput(String)
    /// The key was forgotten at a lock and has not been put back.
    case keyForgotten

    /// The error for a libcrypto call that failed. Empties the thread's error queue, so that nothing piles up there.
    static func failed(_ operation: StaticString) -> CryptoError {
        ERR_clear_error()
        return .library(operation: "\(operation)")
    }
}
