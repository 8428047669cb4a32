internal import COpenSSL

/// SHA-256 (FIPS 180-4).
package enum Sha256 {
    /// Returns the 32-byte digest of `message` (EVP_Digest). Any thread.
    /// - Throws: `.library`.
    package static func digest(_ message: [UInt8]) throws(CryptoError) -> [UInt8] {
        let algorithm = try Library.loaded().sha256
        var digest = [UInt8](repeating: 0, count: 32)
        var size: UInt32 = 0
        guard EVP_Digest(message, message.count, &digest, &size, algorithm, nil) == 1, size == 32 else {
            throw .failed("EVP_Digest")
        }
        return digest
    }

    /// Does the same for a secret, which stays in locked memory, and so does its digest. Throws `.keyForgotten` too.
    package static func digest(_ secret: SecretBytes) throws(CryptoError) -> SecretBytes {
        let algorithm = try Library.loaded().sha256
        return try SecretBytes(count: 32) { (output) throws(CryptoError) in
            let done = try secret.withKey { (secret) throws(CryptoError) in
                EVP_Digest(
                    secret.baseAddress, secret.count, output.bindMemory(to: UInt8.self).baseAddress, nil, algorithm,
                    nil)
            }
            guard done == 1 else { throw .failed("EVP_Digest") }
        }
    }
}

/// Returns true if two byte strings are equal, compared in a time that depends only on their lengths (CRYPTO_memcmp).
/// Any thread.
package func equalInConstantTime(_ a: [UInt8], _ b: [UInt8]) -> Bool {
    a.count == b.count && CRYPTO_memcmp(a, b, a.count) == 0
}
