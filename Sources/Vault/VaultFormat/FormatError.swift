internal import StrictJSON
package import VaultCrypto

/// An error for bytes that break the format, or for a value that the format cannot store.
///
/// `reason` is a message for people: lower case, no full stop, naming the failure and the wrong value. It never
/// contains a key, a plaintext name or plaintext.
package struct FormatError: Error, Equatable, Sendable, CustomStringConvertible {
    /// The kinds of failure that callers distinguish.
    package enum Kind: Equatable, Sendable {
        /// The bytes break the format.
        case malformed
        /// A version, feature or slot kind that is unknown here, so a newer vaultfs must have written it.
        case newerVersion
        /// A MAC or a SIV does not verify: the bytes were changed, moved, or belong to other keys.
        case doesNotAuthenticate
        /// A name, link target or attribute name is too long to be stored (`ENAMETOOLONG`, `ERANGE`).
        case tooLong
        /// The caller's value is not acceptable (a name with `/`, an empty passphrase, …).
        case invalidValue
        /// Trying a secret on all slots would take too long.
        case tooCostly
        /// The cryptographic library failed for a reason of its own (out of memory, no entropy).
        case cryptography
        /// The key was forgotten at a lock (`ENOKEY`).
        case keyForgotten
    }

    package let kind: Kind
    package let reason: String

    package init(_ kind: Kind, _ reason: String) {
        self.kind = kind
        self.reason = reason
    }

    package var description: String { reason }
}

extension FormatError: JSONFailure {
    package init(malformed reason: String) { self.init(.malformed, reason) }
}

extension FormatError {
    /// Makes the error for `error` in `subject`, a noun phrase such as "header: file secret".
    package init(_ error: CryptoError, subject: String) {
        switch error {
        case .doesNotAuthenticate: self.init(.doesNotAuthenticate, "\(subject) is damaged, or another vault's")
        case .library(let operation): self.init(.cryptography, "\(subject): \(operation) failed")
        case .invalidInput(let what): self.init(.cryptography, "\(subject): invalid input: \(what)")
        case .keyForgotten: self.init(.keyForgotten, "\(subject): the key is forgotten")
        }
    }
}

/// Throws an error of this kind unless `condition` is true.
func require(_ condition: Bool, _ kind: FormatError.Kind, _ reason: @autoclosure () -> String) throws(FormatError) {
    if !condition { throw FormatError(kind, reason()) }
}

/// Evaluates `body`, and turns its error into a `FormatError` about `subject`.
/// - Throws: `doesNotAuthenticate`, `cryptography`, `keyForgotten`, as the error of `body`.
package func cryptography<R>(
    _ subject: @autoclosure () -> String, _ body: @autoclosure () throws(CryptoError) -> R
) throws(FormatError) -> R {
    do throws(CryptoError) { return try body() } catch { throw FormatError(error, subject: subject()) }
}
