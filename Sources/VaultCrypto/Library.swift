internal import COpenSSL

/// The algorithms of libcrypto, each fetched once per process: a fetch costs microseconds and takes a global lock.
///
/// `@unchecked Sendable`: the handles are never changed or freed, and libcrypto counts references to them atomically.
final class Library: @unchecked Sendable {
    private static let shared: Result<Library, CryptoError> = {
        do throws(CryptoError) { return .success(try Library()) } catch { return .failure(error) }
    }()

    /// The one instance. Fails, always, where libcrypto lacks an algorithm.
    static func loaded() throws(CryptoError) -> Library { try shared.get() }

    let aes256CBC: OpaquePointer
    let aes256ECB: OpaquePointer
    let aes256SIV: OpaquePointer
    let poly1305: OpaquePointer
    let sha256: OpaquePointer
    let hkdf: OpaquePointer
    let scrypt: OpaquePointer
    /// An EVP_MAC_CTX for HMAC-SHA256 under a key of no importance, to be copied: naming the digest anew for each
    /// message would fetch it anew.
    let hmacTemplate: OpaquePointer

    private init() throws(CryptoError) {
        aes256CBC = try Self.found(EVP_CIPHER_fetch(nil, "AES-256-CBC", nil), "EVP_CIPHER_fetch AES-256-CBC")
        aes256ECB = try Self.found(EVP_CIPHER_fetch(nil, "AES-256-ECB", nil), "EVP_CIPHER_fetch AES-256-ECB")
        aes256SIV = try Self.found(EVP_CIPHER_fetch(nil, "AES-256-SIV", nil), "EVP_CIPHER_fetch AES-256-SIV")
        poly1305 = try Self.found(EVP_MAC_fetch(nil, "POLY1305", nil), "EVP_MAC_fetch POLY1305")
        sha256 = try Self.found(EVP_MD_fetch(nil, "SHA2-256", nil), "EVP_MD_fetch SHA2-256")
        hkdf = try Self.found(EVP_KDF_fetch(nil, "HKDF", nil), "EVP_KDF_fetch HKDF")
        scrypt = try Self.found(EVP_KDF_fetch(nil, "SCRYPT", nil), "EVP_KDF_fetch SCRYPT")
        let hmac = try Self.found(EVP_MAC_fetch(nil, "HMAC", nil), "EVP_MAC_fetch HMAC")
        hmacTemplate = try Self.found(EVP_MAC_CTX_new(hmac), "EVP_MAC_CTX_new HMAC")
        let noKey = [UInt8](repeating: 0, count: 32)
        guard openssl_hmac_sha256_init(hmacTemplate, noKey, noKey.count) == 1 else {
            throw .failed("EVP_MAC_init HMAC")
        }
    }

    private static func found(
        _ handle: OpaquePointer?, _ operation: StaticString
    ) throws(CryptoError) -> OpaquePointer {
        guard let handle else { throw .failed(operation) }
        return handle
    }
}
