/// The digests that `openssl enc -md` is used with, by the names it gives them.
package enum OpenSSLDigest: String, CaseIterable, Codable, Sendable {
    case md5, sha1, sha224, sha256, sha384, sha512

    /// The name that libcrypto fetches it by (EVP_MD_fetch(3)).
    var algorithmName: String {
        switch self {
        case .md5: "MD5"
        case .sha1: "SHA1"
        case .sha224: "SHA2-224"
        case .sha256: "SHA2-256"
        case .sha384: "SHA2-384"
        case .sha512: "SHA2-512"
        }
    }
}
