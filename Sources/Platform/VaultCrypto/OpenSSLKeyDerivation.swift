internal import COpenSSL

/// The key derivation of `openssl enc`: passphrase and salt to key and initial vector (openssl-enc(1)).
package enum OpenSSLKeyDerivation: Codable, Equatable, Sendable {
    /// EVP_BytesToKey(3) with a count of 1: `openssl enc` without `-pbkdf2` and `-iter`.
    case bytesToKey(OpenSSLDigest)
    /// PBKDF2 with HMAC (RFC 8018 section 5.2): `-pbkdf2`, 10,000 iterations by default.
    case pbkdf2(OpenSSLDigest, iterations: Int)

    /// The number of bytes of salt in such a file (PKCS5_SALT_LEN), if it has one.
    package static let saltSize = 8
    /// The possible numbers of PBKDF2's iterations, for at most some minutes.
    package static let iterations = 1...100_000_000
    private static let vectorSize = 16

    /// Derives a key of `keySize` bytes (16, 24 or 32) and an initial vector of 16. Any thread. PBKDF2 is slow by
    /// design.
    ///
    /// Throws `.invalidInput` for other sizes and counts, `.keyForgotten`, and `.library` if libcrypto lacks the
    /// digest.
    package func derive(
        passphrase: SecretBytes, salt: [UInt8], keySize: Int
    ) throws(CryptoError) -> (key: SecretBytes, vector: SecretBytes) {
        let library = try Library.loaded()
        let cipher = try library.aesCBC(keySize: keySize)
        guard let passphraseSize = Int32(exactly: passphrase.count) else {
            throw .invalidInput("a passphrase of \(passphrase.count) bytes")
        }
        let derived = try SecretBytes(count: keySize + Self.vectorSize) { (output) throws(CryptoError) in
            try passphrase.withKey { (passphrase) throws(CryptoError) in
                switch self {
                case .bytesToKey(let digest):
                    // The function always reads this many bytes, unless it gets none (-nosalt).
                    guard salt.isEmpty || salt.count == Self.saltSize else {
                        throw .invalidInput("a salt of \(salt.count) bytes for EVP_BytesToKey")
                    }
                    guard let key = output.bindMemory(to: UInt8.self).baseAddress else { return }
                    let made = EVP_BytesToKey(
                        cipher, try library.digest(digest), salt.isEmpty ? nil : salt,
                        passphrase.bindMemory(to: UInt8.self).baseAddress,
                        passphraseSize, 1, key, key + keySize)
                    guard Int(made) == keySize else { throw .failed("EVP_BytesToKey") }
                case .pbkdf2(let digest, let iterations):
                    guard Self.iterations.contains(iterations) else {
                        throw .invalidInput("\(iterations) iterations of PBKDF2")
                    }
                    let done = PKCS5_PBKDF2_HMAC(
                        passphrase.bindMemory(to: CChar.self).baseAddress, passphraseSize, salt, Int32(salt.count),
                        Int32(iterations), try library.digest(digest), Int32(output.count),
                        output.bindMemory(to: UInt8.self).baseAddress)
                    guard done == 1 else { throw .failed("PKCS5_PBKDF2_HMAC") }
                }
            }
        }
        return (derived.subrange(0..<keySize), derived.subrange(keySize..<derived.count))
    }
}

/// The digests of `openssl enc -md`, by the names used there.
package enum OpenSSLDigest: String, CaseIterable, Codable, Sendable {
    case md5, sha1, sha224, sha256, sha384, sha512
}
