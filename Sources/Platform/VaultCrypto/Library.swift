internal import COpenSSL

/// The algorithms of libcrypto, each fetched once per process: a fetch costs microseconds and takes a global lock.
///
/// `@unchecked Sendable`: the handles are never changed or freed, and libcrypto counts references to them atomically.
final class Library: @unchecked Sendable {
    private static let shared: Result<Library, CryptoError> = {
        do throws(CryptoError) { return .success(try Library()) } catch { return .failure(error) }
    }()

    /// Returns the one instance. Always fails if libcrypto lacks an algorithm.
    static func loaded() throws(CryptoError) -> Library { try shared.get() }

    /// AES in CBC mode, by the size of its key in bytes.
    private let aesCBC: [Int: OpaquePointer]
    let aes256ECB, poly1305, sha256, scrypt: OpaquePointer
    /// The available digests. A libcrypto restricted to FIPS lacks MD5, which only old files need.
    private let digests: [OpenSSLDigest: OpaquePointer]

    private init() throws(CryptoError) {
        aesCBC = [
            16: try Self.found(EVP_CIPHER_fetch(nil, "AES-128-CBC", nil), "EVP_CIPHER_fetch AES-128-CBC"),
            24: try Self.found(EVP_CIPHER_fetch(nil, "AES-192-CBC", nil), "EVP_CIPHER_fetch AES-192-CBC"),
            32: try Self.found(EVP_CIPHER_fetch(nil, "AES-256-CBC", nil), "EVP_CIPHER_fetch AES-256-CBC"),
        ]
        aes256ECB = try Self.found(EVP_CIPHER_fetch(nil, "AES-256-ECB", nil), "EVP_CIPHER_fetch AES-256-ECB")
        poly1305 = try Self.found(EVP_MAC_fetch(nil, "POLY1305", nil), "EVP_MAC_fetch POLY1305")
        sha256 = try Self.found(EVP_MD_fetch(nil, "SHA2-256", nil), "EVP_MD_fetch SHA2-256")
        scrypt = try Self.found(EVP_KDF_fetch(nil, "SCRYPT", nil), "EVP_KDF_fetch SCRYPT")
        var digests: [OpenSSLDigest: OpaquePointer] = [:]
        // Names of algorithms are not case-sensitive (crypto(7)).
        for digest in OpenSSLDigest.allCases { digests[digest] = EVP_MD_fetch(nil, digest.rawValue, nil) }
        self.digests = digests
        ERR_clear_error()
    }

    /// Returns AES in CBC mode with a key of 16, 24 or 32 bytes. Throws `.invalidInput` for other sizes.
    func aesCBC(keySize: Int) throws(CryptoError) -> OpaquePointer {
        guard let found = aesCBC[keySize] else { throw .invalidInput("an AES key of \(keySize) bytes") }
        return found
    }

    /// Throws `.library` if libcrypto lacks the digest.
    func digest(_ digest: OpenSSLDigest) throws(CryptoError) -> OpaquePointer {
        guard let found = digests[digest] else { throw .library(operation: "EVP_MD_fetch \(digest.rawValue)") }
        return found
    }

    private static func found(
        _ handle: OpaquePointer?, _ operation: StaticString
    ) throws(CryptoError) -> OpaquePointer {
        guard let handle else { throw .failed(operation) }
        return handle
    }
}
