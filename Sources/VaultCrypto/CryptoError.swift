/// Why a cryptographic operation failed.
package enum CryptoError: Error, Equatable {
    /// A tag or a synthetic IV does not verify.
    case doesNotAuthenticate
    /// libcrypto refused what should not fail; the function's name.
    case library(operation: String)
    /// The caller's input is out of bounds.
    case invalidInput(String)
}

/// libcrypto's functions return 1 for success.
@inline(__always)
func check(_ status: Int32, _ operation: StaticString) throws(CryptoError) {
    if status != 1 { throw .library(operation: "\(operation)") }
}
