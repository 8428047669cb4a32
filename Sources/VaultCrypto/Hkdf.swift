internal import COpenSSL

/// HKDF-SHA256 (RFC 5869): extract, then expand.
package enum Hkdf {
    /// `count` bytes (1…8160) derived from a secret that is not empty. Any thread.
    package static func derive(
        secret: SecretBytes, salt: [UInt8], info: [UInt8], count: Int
    ) throws(CryptoError) -> SecretBytes {
        guard secret.count > 0 else { throw .invalidInput("an empty HKDF secret") }
        guard (1...255 * 32).contains(count) else { throw .invalidInput("\(count) bytes of HKDF output") }
        guard let context = EVP_KDF_CTX_new(try Library.loaded().hkdf) else { throw .failed("EVP_KDF_CTX_new") }
        defer { EVP_KDF_CTX_free(context) }
        return try SecretBytes(count: count) { (output) throws(CryptoError) in
            let derived = try secret.withKey { (secret) throws(CryptoError) in
                openssl_hkdf_sha256(
                    context, secret.baseAddress, secret.count, salt, salt.count, info, info.count, output.baseAddress,
                    output.count)
            }
            guard derived == 1 else { throw .failed("EVP_KDF_derive HKDF") }
        }
    }
}
