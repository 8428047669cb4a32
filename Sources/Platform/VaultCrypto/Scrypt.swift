internal import COpenSSL

/// scrypt (RFC 7914), for passphrases.
package enum Scrypt {
    /// The most memory for the table, and again for the lanes, of a derivation: 1 GiB.
    private static let maximumMemory: UInt64 = 1 << 30

    /// Derives `count` bytes with cost N = 2^`logN`, block size `r` and parallelism `p`. Any thread. Slow by design.
    ///
    /// Throws `.invalidInput` for parameters out of range, or if 128·N·r or 128·p·r is over 1 GiB. Throws
    /// `.keyForgotten`, and `.library`, also for other parameters excluded by RFC 7914. The caller checks the format's
    /// narrower bounds.
    package static func derive(
        passphrase: SecretBytes, salt: [UInt8], logN: Int, r: Int, p: Int, count: Int
    ) throws(CryptoError) -> SecretBytes {
        guard (1...30).contains(logN), (1...1 << 20).contains(r), (1...1 << 20).contains(p), count > 0 else {
            throw .invalidInput("scrypt parameters logN \(logN), r \(r), p \(p), \(count) bytes")
        }
        let n = UInt64(1) << UInt64(logN)
        // The products cannot overflow, because the factors are at most 2^30, 2^20 and 2^7.
        let tableMemory = n * UInt64(r) * 128
        let laneMemory = UInt64(p) * UInt64(r) * 128
        guard tableMemory <= maximumMemory, laneMemory <= maximumMemory else {
            throw .invalidInput("scrypt parameters logN \(logN), r \(r), p \(p) take over 1 GiB")
        }
        guard let context = EVP_KDF_CTX_new(try Library.loaded().scrypt) else { throw .failed("EVP_KDF_CTX_new") }
        defer { EVP_KDF_CTX_free(context) }
        // libcrypto also counts a few blocks of its own, of 128·r bytes each.
        let limit = tableMemory + laneMemory + UInt64(r) * 1024 + 65536
        return try SecretBytes(count: count) { (output) throws(CryptoError) in
            let derived = try passphrase.withKey { (passphrase) throws(CryptoError) in
                openssl_scrypt(
                    context, passphrase.baseAddress, passphrase.count, salt, salt.count, n, UInt32(r), UInt32(p), limit,
                    output.baseAddress, output.count)
            }
            guard derived == 1 else { throw .failed("EVP_KDF_derive scrypt") }
        }
    }
}
