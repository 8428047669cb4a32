internal import COpenSSL

/// The version of libcrypto in use.
package enum CryptoVersion {
    /// The version, such as `3.0.17`.
    package static var text: String { String(cString: OpenSSL_version(OPENSSL_VERSION_STRING)) }
}
