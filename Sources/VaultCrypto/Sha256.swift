internal import COpenSSL

/// SHA-256 (FIPS 180-4).
package enum Sha256 {
    /// The 32-byte digest of `message` (EVP_Digest). Any thread.
    package static func digest(_ message: [UInt8]) throws(CryptoError) -> [UInt8] {
        let algorithm = try Library.loaded().sha256
        var digest = [UInt8](repeating: 0, count: 32)
        var size: UInt32 = 0
        guard EVP_Digest(message, message.count, &digest, &size, algorithm, nil) == 1, size == 32 else {
            throw .failed("EVP_Digest")
        }
        return digest
    }

    /// The same for a secret. Neither it nor its digest leaves locked memory. Throws `.keyForgotten` too.
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
