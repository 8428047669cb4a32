internal import COpenSSL

/// X25519 (RFC 7748). Any thread.
package enum X25519 {
    /// The bytes of a private key, a public key, and a shared secret.
    package static let size = 32
    private static let name = "X25519"

    /// Returns the public key of a private key, which is any 32 bytes.
    /// - Throws: `.keyForgotten`, `.library`, `.invalidInput` for another size.
    package static func publicKey(of privateKey: SecretBytes) throws(CryptoError) -> [UInt8] {
        let key = try load(privateKey)
        defer { EVP_PKEY_free(key) }
        var result = [UInt8](repeating: 0, count: size)
        var count = size
        guard EVP_PKEY_get_raw_public_key(key, &result, &count) == 1, count == size else {
            throw .failed("EVP_PKEY_get_raw_public_key")
        }
        return result
    }

    /// Returns the shared secret of two key pairs' owners. Throws `.doesNotAuthenticate` for one of the few public keys
    /// that give a secret of zeros (RFC 7748, section 6.1), and `.invalidInput` unless both keys have 32 bytes.
    package static func sharedSecret(
        _ privateKey: SecretBytes, _ publicKey: [UInt8]
    ) throws(CryptoError) -> SecretBytes {
        guard publicKey.count == size else { throw .invalidInput("an X25519 key of \(publicKey.count) bytes") }
        let own = try load(privateKey)
        defer { EVP_PKEY_free(own) }
        guard let peer = EVP_PKEY_new_raw_public_key_ex(nil, name, nil, publicKey, size) else {
            throw .failed("EVP_PKEY_new_raw_public_key_ex")
        }
        defer { EVP_PKEY_free(peer) }
        guard let context = EVP_PKEY_CTX_new_from_pkey(nil, own, nil) else {
            throw .failed("EVP_PKEY_CTX_new_from_pkey")
        }
        defer { EVP_PKEY_CTX_free(context) }
        guard EVP_PKEY_derive_init(context) == 1, EVP_PKEY_derive_set_peer(context, peer) == 1 else {
            throw .failed("EVP_PKEY_derive_init X25519")
        }
        return try SecretBytes(count: size) { (output) throws(CryptoError) in
            var count = size
            guard EVP_PKEY_derive(context, output.bindMemory(to: UInt8.self).baseAddress, &count) == 1, count == size
            else {
                ERR_clear_error()
                throw .doesNotAuthenticate
            }
        }
    }

    private static func load(_ privateKey: SecretBytes) throws(CryptoError) -> OpaquePointer {
        guard privateKey.count == size else { throw .invalidInput("an X25519 key of \(privateKey.count) bytes") }
        let key = try privateKey.withKey { (bytes) throws(CryptoError) in
            EVP_PKEY_new_raw_private_key_ex(nil, name, nil, bytes.bindMemory(to: UInt8.self).baseAddress, size)
        }
        guard let key else { throw .failed("EVP_PKEY_new_raw_private_key_ex") }
        return key
    }
}
