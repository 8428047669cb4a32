internal import COpenSSL

/// HMAC-SHA256 (RFC 2104) under one key, from libcrypto's SHA-256. One thread at a time.
///
/// libcrypto's own HMAC and HKDF find the digest and their parameters by name for each message, which takes several
/// times as long as the digests of a header or a key (Performance.md).
struct HmacContext: ~Copyable {
    static let size = 32
    private static let blockSize = 64

    private let algorithm, digest: OpaquePointer
    /// The key's block XORed with the inner and the outer padding.
    private let pads: UnsafeMutableRawBufferPointer

    /// - Throws: `.library`.
    init(key: UnsafeRawBufferPointer) throws(CryptoError) {
        let algorithm = try Library.loaded().sha256
        guard let digest = EVP_MD_CTX_new() else { throw .failed("EVP_MD_CTX_new") }
        let pads = UnsafeMutableRawBufferPointer.allocate(byteCount: 2 * Self.blockSize, alignment: 16)
        pads.initializeMemory(as: UInt8.self, repeating: 0)
        if key.count <= Self.blockSize {
            pads.copyMemory(from: key)
        } else {
            let hashed = pads.baseAddress?.assumingMemoryBound(to: UInt8.self)
            guard EVP_Digest(key.baseAddress, key.count, hashed, nil, algorithm, nil) == 1 else {
                pads.deallocate()
                EVP_MD_CTX_free(digest)
                throw .failed("EVP_Digest")
            }
        }
        for index in 0..<Self.blockSize {
            pads[Self.blockSize + index] = pads[index] ^ 0x5C
            pads[index] ^= 0x36
        }
        (self.algorithm, self.digest, self.pads) = (algorithm, digest, pads)
    }

    deinit {
        OPENSSL_cleanse(pads.baseAddress, pads.count)
        pads.deallocate()
        // Wipes the digest's state.
        EVP_MD_CTX_free(digest)
    }

    /// Writes the 32-byte authenticator of a message, which may have a second part.
    func authenticate(
        _ message: UnsafeRawBufferPointer, _ rest: UnsafeRawBufferPointer? = nil,
        into authenticator: UnsafeMutableRawPointer
    ) throws(CryptoError) {
        try begin(with: UnsafeRawBufferPointer(rebasing: pads[..<Self.blockSize]))
        try update(message)
        if let rest { try update(rest) }
        try finish(into: authenticator)
        try begin(with: UnsafeRawBufferPointer(rebasing: pads[Self.blockSize...]))
        try update(UnsafeRawBufferPointer(start: authenticator, count: Self.size))
        try finish(into: authenticator)
    }

    private func begin(with bytes: UnsafeRawBufferPointer) throws(CryptoError) {
        guard EVP_DigestInit_ex2(digest, algorithm, nil) == 1 else { throw .failed("EVP_DigestInit_ex2") }
        try update(bytes)
    }

    private func update(_ bytes: UnsafeRawBufferPointer) throws(CryptoError) {
        guard EVP_DigestUpdate(digest, bytes.baseAddress, bytes.count) == 1 else { throw .failed("EVP_DigestUpdate") }
    }

    private func finish(into output: UnsafeMutableRawPointer) throws(CryptoError) {
        guard EVP_DigestFinal_ex(digest, output.assumingMemoryBound(to: UInt8.self), nil) == 1 else {
            throw .failed("EVP_DigestFinal_ex")
        }
    }
}

/// HMAC-SHA256 (RFC 2104).
package enum HmacSha256 {
    /// Returns the 32-byte authenticator of `message` under `key`, which must not be empty. Any thread.
    /// - Throws: `.invalidInput` for an empty key, `.keyForgotten`, `.library`.
    package static func authenticate(_ message: [UInt8], key: SecretBytes) throws(CryptoError) -> [UInt8] {
        guard key.count > 0 else { throw .invalidInput("an empty HMAC key") }
        var authenticator = [UInt8](repeating: 0, count: HmacContext.size)
        try key.withKey { (key) throws(CryptoError) in
            try message.withUnsafeBufferPointer { (message) throws(CryptoError) in
                try HmacContext(key: key).authenticate(UnsafeRawBufferPointer(message), into: &authenticator)
            }
        }
        return authenticator
    }
}

/// HKDF-SHA256 (RFC 5869): extract, then expand.
package enum Hkdf {
    /// Derives `count` bytes (1…8160) from a secret that is not empty. Any thread.
    /// - Throws: `.invalidInput` for an empty secret or another count, `.keyForgotten`, `.library`.
    package static func derive(
        secret: SecretBytes, salt: [UInt8], info: [UInt8], count: Int
    ) throws(CryptoError) -> SecretBytes {
        guard secret.count > 0 else { throw .invalidInput("an empty HKDF secret") }
        guard (1...255 * HmacContext.size).contains(count) else { throw .invalidInput("\(count) bytes of HKDF output") }
        return try SecretBytes(count: count) { (output) throws(CryptoError) in
            try withUnsafeTemporaryAllocation(byteCount: HmacContext.size, alignment: 16) {
                (block) throws(CryptoError) in
                guard let last = block.baseAddress else { return }
                defer { OPENSSL_cleanse(last, block.count) }
                // HMAC pads an empty salt to the same block as RFC 5869's 32 zeros.
                try salt.withUnsafeBufferPointer { (salt) throws(CryptoError) in
                    let extracting = try HmacContext(key: UnsafeRawBufferPointer(salt))
                    try secret.withKey { (secret) throws(CryptoError) in
                        try extracting.authenticate(secret, into: last)
                    }
                }
                let expanding = try HmacContext(key: UnsafeRawBufferPointer(block))
                // Each block's message: the block before it, the info, and the block's number.
                var tail = info + [0]
                var done = 0
                while done < count {
                    tail[info.count] += 1
                    try tail.withUnsafeBufferPointer { (tail) throws(CryptoError) in
                        try expanding.authenticate(
                            UnsafeRawBufferPointer(start: last, count: done > 0 ? block.count : 0),
                            UnsafeRawBufferPointer(tail), into: last)
                    }
                    let part = min(HmacContext.size, count - done)
                    UnsafeMutableRawBufferPointer(rebasing: output[done...]).copyMemory(
                        from: UnsafeRawBufferPointer(start: last, count: part))
                    done += part
                }
            }
        }
    }
}
