/// The ciphers of views: AES in CBC mode (NIST SP 800-38A).
package enum ViewCipher: String, CaseIterable, Codable, Hashable, Sendable {
    case aes128CBC = "aes-128-cbc"
    case aes192CBC = "aes-192-cbc"
    case aes256CBC = "aes-256-cbc"

    /// In bytes.
    package var keySize: Int {
        switch self {
        case .aes128CBC: 16
        case .aes192CBC: 24
        case .aes256CBC: 32
        }
    }
}
