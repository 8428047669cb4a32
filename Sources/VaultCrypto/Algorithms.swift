internal import COpenSSL

/// libcrypto's algorithms, fetched once: EVP_*_fetch is slow. The objects are immutable and live as long as the process.
struct Algorithms: @unchecked Sendable {
    // @unchecked: fetched algorithms are reference counted and immutable, evp(7).
    let cbc: OpaquePointer
    let ecb: OpaquePointer
    let siv: OpaquePointer
    let sha256: OpaquePointer
    let poly1305: OpaquePointer
    let hmac: OpaquePointer
    let hkdf: OpaquePointer
    let scrypt: OpaquePointer

    private static let fetched: Algorithms? = {
        guard let cbc = EVP_CIPHER_fetch(nil, "AES-256-CBC", nil), let ecb = EVP_CIPHER_fetch(nil, "AES-256-ECB", nil),
            let siv = EVP_CIPHER_fetch(nil, "AES-256-SIV", nil), let sha256 = EVP_MD_fetch(nil, "SHA256", nil),
            let poly1305 = EVP_MAC_fetch(nil, "POLY1305", nil), let hmac = EVP_MAC_fetch(nil, "HMAC", nil),
            let hkdf = EVP_KDF_fetch(nil, "HKDF", nil), let scrypt = EVP_KDF_fetch(nil, "SCRYPT", nil)
        else { return nil }
        return Algorithms(
            cbc: cbc, ecb: ecb, siv: siv, sha256: sha256, poly1305: poly1305, hmac: hmac, hkdf: hkdf, scrypt: scrypt)
    }()

    /// - Throws: `.library` where this libcrypto lacks one of them (it is older than 3.0, or restricted).
    static func get() throws(CryptoError) -> Algorithms {
        guard let fetched else { throw .library(operation: "EVP_*_fetch") }
        return fetched
    }
}
