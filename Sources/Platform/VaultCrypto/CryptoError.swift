internal import COpenSSL

package enum CryptoError: Error, Equatable {
    /// The data was not made under this key, or has been changed.
    case doesNotAuthenticate
    /// libcrypto or the kernel refused an operation for a reason outside of the data, such as lack of memory.
    case library(operation: String)
    /// The caller passed invalid sizes or parameters. The text names them.
    case invalidInput(String)
    /// The key was forgotten at a lock and has not been restored.
    case keyForgotten

    /// Returns the error for a failed libcrypto call. Empties the thread's error queue, which would grow otherwise.
    static func failed(_ operation: StaticString) -> CryptoError {
        ERR_clear_error()
        return .library(operation: "\(operation)")
    }
}
