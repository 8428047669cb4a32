internal import COpenSSL

/// SHA-256 (FIPS 180-4).
package enum Sha256 {
    package static func digest(_ message: [UInt8]) throws(CryptoError) -> [UInt8] {
        var result = [UInt8](repeating: 0, count: 32)
        let algorithm = try Algorithms.get().sha256
        try check(EVP_Digest(message, message.count, &result, nil, algorithm, nil), "EVP_Digest")
        return result
    }
}

/// HMAC-SHA256 (RFC 2104).
package enum HmacSha256 {
    package static func authenticate(_ message: [UInt8], key: SecretBytes) throws(CryptoError) -> [UInt8] {
        guard let context = EVP_MAC_CTX_new(try Algorithms.get().hmac) else {
            throw .library(operation: "EVP_MAC_CTX_new")
        }
        defer { EVP_MAC_CTX_free(context) }
        var result = [UInt8](repeating: 0, count: 32)
        try withDigestParameters("digest") { (parameters) throws(CryptoError) in
            try key.withUnsafeBytes { (key) throws(CryptoError) in
                try check(EVP_MAC_init(context, key.baseAddress, key.count, parameters), "EVP_MAC_init")
            }
        }
        var size = 0
        try check(EVP_MAC_update(context, message, message.count), "EVP_MAC_update")
        try check(EVP_MAC_final(context, &result, &size, result.count), "EVP_MAC_final")
        return result
    }
}

/// A parameter list that names SHA-256.
func withDigestParameters(
    _ key: StaticString, _ body: (UnsafePointer<OSSL_PARAM>) throws(CryptoError) -> Void
) throws(CryptoError) {
    var name = Array("SHA256".utf8CString)
    let outcome = name.withUnsafeMutableBufferPointer { name -> Result<Void, CryptoError> in
        var parameters = [
            OSSL_PARAM_construct_utf8_string("digest", name.baseAddress, 0), OSSL_PARAM_construct_end(),
        ]
        do throws(CryptoError) {
            try body(&parameters)
            return .success(())
        } catch { return .failure(error) }
    }
    try outcome.get()
}

/// Compares without telling by the time where they differ (CRYPTO_memcmp).
package func equalInConstantTime(_ a: [UInt8], _ b: [UInt8]) -> Bool {
    a.count == b.count && CRYPTO_memcmp(a, b, a.count) == 0
}
