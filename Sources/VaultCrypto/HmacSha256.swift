internal import COpenSSL

/// HMAC-SHA256 (RFC 2104).
package enum HmacSha256 {
    /// The 32-byte authenticator of `message` under `key`, which is not empty. Any thread.
    package static func authenticate(_ message: [UInt8], key: SecretBytes) throws(CryptoError) -> [UInt8] {
        guard key.count > 0 else { throw .invalidInput("an empty HMAC key") }
        guard let context = EVP_MAC_CTX_dup(try Library.loaded().hmacTemplate) else { throw .failed("EVP_MAC_CTX_dup") }
        defer { EVP_MAC_CTX_free(context) }
        let keyed = try key.withKey { (key) throws(CryptoError) in
            EVP_MAC_init(context, key.bindMemory(to: UInt8.self).baseAddress, key.count, nil)
        }
        guard keyed == 1 else { throw .failed("EVP_MAC_init") }
        guard EVP_MAC_update(context, message, message.count) == 1 else { throw .failed("EVP_MAC_update") }
        var authenticator = [UInt8](repeating: 0, count: 32)
        var size = 0
        guard EVP_MAC_final(context, &authenticator, &size, 32) == 1, size == 32 else {
            throw .failed("EVP_MAC_final")
        }
        return authenticator
    }
}

/// True if two byte strings are equal, compared in a time that depends only on their lengths (CRYPTO_memcmp). Any
/// thread.
package func equalInConstantTime(_ a: [UInt8], _ b: [UInt8]) -> Bool {
    a.count == b.count && CRYPTO_memcmp(a, b, a.count) == 0
}
