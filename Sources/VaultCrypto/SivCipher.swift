internal import COpenSSL

/// AES-256-SIV (RFC 5297) under one 64-byte key: the same input always gives the same output. Any thread: a keyed
/// context is kept as a template and copied for each message, since a context of OpenSSL 3.0 serves one message.
package final class SivCipher: @unchecked Sendable {
    // @unchecked: the templates are only read (EVP_CIPHER_CTX_copy takes its source as const) after `init`.
    private static let tagSize = 16
    private let sealing: OpaquePointer
    private let opening: OpaquePointer

    /// - Parameter key: 64 bytes.
    package init(key: SecretBytes) throws(CryptoError) {
        guard key.count == 64 else { throw .invalidInput("a SIV key has 64 bytes, not \(key.count)") }
        sealing = try Self.template(key, isSealing: 1)
        do { opening = try Self.template(key, isSealing: 0) } catch {
            EVP_CIPHER_CTX_free(sealing)
            throw error
        }
    }

    deinit {
        EVP_CIPHER_CTX_free(sealing)
        EVP_CIPHER_CTX_free(opening)
    }

    private static func template(_ key: SecretBytes, isSealing: Int32) throws(CryptoError) -> OpaquePointer {
        let algorithm = try Algorithms.get().siv
        guard let context = EVP_CIPHER_CTX_new() else { throw .library(operation: "EVP_CIPHER_CTX_new") }
        let status = key.withUnsafeBytes { key in
            EVP_CipherInit_ex2(
                context, algorithm, key.baseAddress?.assumingMemoryBound(to: UInt8.self), nil, isSealing, nil)
        }
        guard status == 1 else {
            EVP_CIPHER_CTX_free(context)
            throw .library(operation: "EVP_CipherInit_ex2 AES-256-SIV")
        }
        return context
    }

    /// Seals `plaintext`: V (16 bytes) ‖ C.
    /// - Parameter associatedData: one S2V component each, in order.
    /// - Throws: `.invalidInput` for an empty plaintext, for which OpenSSL 3.0 gives a zero V and reports success.
    package func seal(_ plaintext: [UInt8], associatedData: [[UInt8]]) throws(CryptoError) -> [UInt8] {
        try plaintext.withBytes { (bytes) throws(CryptoError) -> [UInt8] in
            try seal(bytes, associatedData)
        }
    }

    /// The same for a key.
    package func sealSecret(_ secret: SecretBytes, associatedData: [[UInt8]]) throws(CryptoError) -> [UInt8] {
        try secret.withUnsafeBytes { (bytes) throws(CryptoError) -> [UInt8] in try seal(bytes, associatedData) }
    }

    private func seal(
        _ plaintext: UnsafeRawBufferPointer, _ associatedData: [[UInt8]]
    ) throws(CryptoError) -> [UInt8] {
        guard !plaintext.isEmpty else { throw .invalidInput("an empty text cannot be sealed") }
        let context = try copy(sealing, associatedData)
        defer { EVP_CIPHER_CTX_free(context) }
        var result = [UInt8](repeating: 0, count: Self.tagSize + plaintext.count)
        let status = result.withUnsafeMutableBufferPointer { output -> Int32 in
            guard let base = output.baseAddress else { return 0 }
            var size: Int32 = 0
            guard
                EVP_CipherUpdate(
                    context, base + Self.tagSize, &size, plaintext.baseAddress?.assumingMemoryBound(to: UInt8.self),
                    Int32(plaintext.count)) == 1, size == Int32(plaintext.count),
                EVP_CipherFinal_ex(context, base, &size) == 1
            else { return 0 }
            return EVP_CIPHER_CTX_ctrl(context, EVP_CTRL_AEAD_GET_TAG, Int32(Self.tagSize), base)
        }
        try check(status, "AES-256-SIV seal")
        return result
    }

    /// Opens V ‖ C.
    /// - Throws: `.doesNotAuthenticate`.
    package func open(_ sealed: [UInt8], associatedData: [[UInt8]]) throws(CryptoError) -> [UInt8] {
        guard sealed.count > Self.tagSize else { throw .doesNotAuthenticate }
        var result = [UInt8](repeating: 0, count: sealed.count - Self.tagSize)
        try result.withMutableBytes { (output) throws(CryptoError) in
            try open(sealed, associatedData, into: output)
        }
        return result
    }

    /// The same for a key.
    package func openSecret(_ sealed: [UInt8], associatedData: [[UInt8]]) throws(CryptoError) -> SecretBytes {
        guard sealed.count > Self.tagSize else { throw .doesNotAuthenticate }
        return try SecretBytes(count: sealed.count - Self.tagSize) { (output) throws(CryptoError) in
            try open(sealed, associatedData, into: output)
        }
    }

    private func open(
        _ sealed: [UInt8], _ associatedData: [[UInt8]], into output: UnsafeMutableRawBufferPointer
    ) throws(CryptoError) {
        let context = try copy(opening, associatedData)
        defer { EVP_CIPHER_CTX_free(context) }
        var tag = Array(sealed[..<Self.tagSize])
        try check(
            EVP_CIPHER_CTX_ctrl(context, EVP_CTRL_AEAD_SET_TAG, Int32(Self.tagSize), &tag), "EVP_CTRL_AEAD_SET_TAG")
        let isAuthentic = sealed.withUnsafeBufferPointer { input -> Bool in
            guard let base = input.baseAddress else { return false }
            var size: Int32 = 0
            let status = EVP_CipherUpdate(
                context, output.baseAddress?.assumingMemoryBound(to: UInt8.self), &size, base + Self.tagSize,
                Int32(output.count))
            return status == 1 && size == Int32(output.count)
        }
        guard isAuthentic else {
            cleanse(output)
            throw .doesNotAuthenticate
        }
    }

    /// A context for one message, with its associated data taken in.
    private func copy(_ template: OpaquePointer, _ associatedData: [[UInt8]]) throws(CryptoError) -> OpaquePointer {
        guard let context = EVP_CIPHER_CTX_new() else { throw .library(operation: "EVP_CIPHER_CTX_new") }
        var isReady = EVP_CIPHER_CTX_copy(context, template) == 1
        for item in associatedData where isReady {
            var size: Int32 = 0
            isReady = EVP_CipherUpdate(context, nil, &size, item, Int32(item.count)) == 1
        }
        guard isReady else {
            EVP_CIPHER_CTX_free(context)
            throw .library(operation: "AES-256-SIV associated data")
        }
        return context
    }
}
