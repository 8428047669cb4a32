internal import COpenSSL

/// AES-256-SIV (RFC 5297) under one key: deterministic authenticated encryption for names, keys and small values.
///
/// `@unchecked Sendable`: the template is only ever copied from (EVP_CIPHER_CTX_copy), changed only while `use` is
/// closed, when no thread copies it, and freed by the last owner.
/// Each message has a context of its own, because one of OpenSSL 3.0 does a single message.
package final class SivCipher: @unchecked Sendable {
    /// The size in bytes of V, which precedes the ciphertext.
    package static let tagSize = 16
    /// The size in bytes of a key.
    package static let keySize = 64

    /// Keyed once. A copy costs a third of setting a key.
    private let template: OpaquePointer
    /// Entered for each message, so that no copy of the template outlives ``forget()``.
    private let use = KeyUse()

    /// A cipher under a 64-byte key. Throws `.invalidInput` for any other size, `.keyForgotten`.
    package init(key: SecretBytes) throws(CryptoError) {
        guard let template = EVP_CIPHER_CTX_new() else { throw .failed("EVP_CIPHER_CTX_new") }
        self.template = template
        try setKey(key)
    }

    deinit { EVP_CIPHER_CTX_free(template) }

    /// Wipes the key schedule in place, and waits for the messages under way to be done: from then on every message
    /// throws `.keyForgotten`. This and ``rekey(_:)``: one thread at a time.
    package func forget() {
        use.close()
        EVP_CIPHER_CTX_reset(template)
    }

    /// Makes this a cipher under a 64-byte key again. Throws as the initialiser, and is then without a key.
    package func rekey(_ key: SecretBytes) throws(CryptoError) {
        forget()
        try setKey(key)
        use.reopen()
    }

    private func setKey(_ key: SecretBytes) throws(CryptoError) {
        guard key.count == Self.keySize else { throw .invalidInput("an AES-256-SIV key of \(key.count) bytes") }
        let algorithm = try Library.loaded().aes256SIV
        let keyed = try key.withKey { (key) throws(CryptoError) in
            EVP_EncryptInit_ex2(template, algorithm, key.bindMemory(to: UInt8.self).baseAddress, nil, nil)
        }
        guard keyed == 1 else { throw .failed("EVP_EncryptInit_ex2 AES-256-SIV") }
    }

    /// V ‖ C for a plaintext, with one S2V component for each item of `associatedData`, in order. Any thread.
    ///
    /// Throws `.invalidInput` for an empty plaintext and for an empty item, see ``refuseEmpty(_:_:)``.
    package func encrypt(_ plaintext: [UInt8], associatedData: [[UInt8]]) throws(CryptoError) -> [UInt8] {
        try plaintext.withUnsafeBufferPointer { (bytes) throws(CryptoError) in
            try encrypt(UnsafeRawBufferPointer(bytes), associatedData)
        }
    }

    /// The plaintext of V ‖ C. Any thread. Throws `.doesNotAuthenticate` if key, data or order of data differ.
    package func decrypt(_ ciphertext: [UInt8], associatedData: [[UInt8]]) throws(CryptoError) -> [UInt8] {
        guard ciphertext.count > Self.tagSize else { throw .doesNotAuthenticate }
        var plaintext = [UInt8](repeating: 0, count: ciphertext.count - Self.tagSize)
        try plaintext.withUnsafeMutableBufferPointer { (output) throws(CryptoError) in
            try decrypt(ciphertext, associatedData, into: UnsafeMutableRawBufferPointer(output))
        }
        return plaintext
    }

    /// Does the same as ``encrypt(_:associatedData:)``, for a plaintext that stays in locked memory.
    /// - Throws: also `.keyForgotten` of the secret.
    package func encryptSecret(_ secret: SecretBytes, associatedData: [[UInt8]]) throws(CryptoError) -> [UInt8] {
        try secret.withKey { (bytes) throws(CryptoError) in try encrypt(bytes, associatedData) }
    }

    /// Does the same as ``decrypt(_:associatedData:)``, into locked memory.
    /// - Throws: the same errors.
    package func decryptSecret(_ ciphertext: [UInt8], associatedData: [[UInt8]]) throws(CryptoError) -> SecretBytes {
        guard ciphertext.count > Self.tagSize else { throw .doesNotAuthenticate }
        return try SecretBytes(count: ciphertext.count - Self.tagSize) { (output) throws(CryptoError) in
            try decrypt(ciphertext, associatedData, into: output)
        }
    }

    private func encrypt(_ plaintext: UnsafeRawBufferPointer, _ data: [[UInt8]]) throws(CryptoError) -> [UInt8] {
        try withContext(encrypts: true, plaintext.count, data) { (context) throws(CryptoError) in
            var ciphertext = [UInt8](repeating: 0, count: Self.tagSize + plaintext.count)
            var size: Int32 = 0
            let done = ciphertext.withUnsafeMutableBufferPointer { output in
                guard let base = output.baseAddress else { return false }
                let input = plaintext.bindMemory(to: UInt8.self).baseAddress
                return EVP_EncryptUpdate(context, base + Self.tagSize, &size, input, Int32(plaintext.count)) == 1
                    && EVP_CIPHER_CTX_ctrl(context, EVP_CTRL_AEAD_GET_TAG, Int32(Self.tagSize), base) == 1
            }
            guard done, Int(size) == plaintext.count else { throw .failed("EVP_EncryptUpdate AES-256-SIV") }
            return ciphertext
        }
    }

    private func decrypt(
        _ ciphertext: [UInt8], _ data: [[UInt8]], into plaintext: UnsafeMutableRawBufferPointer
    ) throws(CryptoError) {
        try withContext(encrypts: false, plaintext.count, data) { (context) throws(CryptoError) in
            var size: Int32 = 0
            let isAuthentic = try ciphertext.withUnsafeBufferPointer { (input) throws(CryptoError) in
                guard let base = input.baseAddress, let output = plaintext.bindMemory(to: UInt8.self).baseAddress
                else { return false }
                // The control takes a pointer to non-const, but reads only.
                let tag = UnsafeMutableRawPointer(mutating: base)
                guard EVP_CIPHER_CTX_ctrl(context, EVP_CTRL_AEAD_SET_TAG, Int32(Self.tagSize), tag) == 1 else {
                    throw .failed("EVP_CTRL_AEAD_SET_TAG")
                }
                return EVP_DecryptUpdate(context, output, &size, base + Self.tagSize, Int32(plaintext.count)) == 1
            }
            guard isAuthentic, Int(size) == plaintext.count else {
                if let base = plaintext.baseAddress { OPENSSL_cleanse(base, plaintext.count) }
                ERR_clear_error()
                throw .doesNotAuthenticate
            }
        }
    }

    /// Calls `body` with a copy of the template that has taken the associated data of one message.
    @inline(__always)
    private func withContext<Result>(
        encrypts: Bool, _ plaintextSize: Int, _ data: [[UInt8]],
        _ body: (OpaquePointer) throws(CryptoError) -> Result
    ) throws(CryptoError) -> Result {
        try refuseEmpty(plaintextSize, data)
        guard use.enter() else { throw .keyForgotten }
        defer { use.leave() }
        guard let context = EVP_CIPHER_CTX_new() else { throw .failed("EVP_CIPHER_CTX_new") }
        defer { EVP_CIPHER_CTX_free(context) }
        guard EVP_CIPHER_CTX_copy(context, template) == 1,
            EVP_CipherInit_ex2(context, nil, nil, nil, encrypts ? 1 : 0, nil) == 1
        else { throw .failed("EVP_CIPHER_CTX_copy AES-256-SIV") }
        var size: Int32 = 0
        for item in data {
            guard EVP_CipherUpdate(context, nil, &size, item, Int32(item.count)) == 1 else {
                throw .failed("EVP_CipherUpdate of associated data")
            }
        }
        return try body(context)
    }

    /// OpenSSL 3.0 gives a zero V for an empty plaintext, and before 3.0.10 leaves empty data out of V, both without an
    /// error. The format has neither.
    private func refuseEmpty(_ plaintextSize: Int, _ data: [[UInt8]]) throws(CryptoError) {
        guard plaintextSize > 0 else { throw .invalidInput("an empty plaintext for AES-256-SIV") }
        guard Int32(exactly: plaintextSize) != nil else {
            throw .invalidInput("a plaintext of \(plaintextSize) bytes for AES-256-SIV")
        }
        // RFC 5297 section 2.6: at most 126 components beside the plaintext.
        guard data.count <= 126, data.allSatisfy({ !$0.isEmpty && Int32(exactly: $0.count) != nil }) else {
            throw .invalidInput("empty, overlong or over 126 items of associated data for AES-256-SIV")
        }
    }
}
