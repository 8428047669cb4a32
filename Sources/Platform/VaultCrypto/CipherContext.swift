internal import COpenSSL

/// One EVP_CIPHER_CTX without padding, and its owner. One thread at a time.
///
/// It is a noncopyable structure instead of a class, because reference counting would slow down each chunk.
struct CipherContext: ~Copyable {
    private let handle, algorithm: OpaquePointer
    private let encrypts: Bool

    /// Makes a context without a key for an algorithm of ``Library``.
    init(_ algorithm: OpaquePointer, encrypts: Bool) throws(CryptoError) {
        guard let handle = EVP_CIPHER_CTX_new() else { throw .failed("EVP_CIPHER_CTX_new") }
        self.handle = handle
        self.algorithm = algorithm
        self.encrypts = encrypts
    }

    /// Makes a context with the key schedule of another one, which must not change meanwhile (EVP_CIPHER_CTX_copy).
    init(copying other: borrowing CipherContext) throws(CryptoError) {
        guard let handle = EVP_CIPHER_CTX_new() else { throw .failed("EVP_CIPHER_CTX_new") }
        guard EVP_CIPHER_CTX_copy(handle, other.handle) == 1 else {
            EVP_CIPHER_CTX_free(handle)
            throw .failed("EVP_CIPHER_CTX_copy")
        }
        self.handle = handle
        algorithm = other.algorithm
        encrypts = other.encrypts
    }

    deinit { EVP_CIPHER_CTX_free(handle) }

    /// Replaces the key schedule. The initial vector is zero until one is set. Throws `.keyForgotten`, `.library`.
    func setKey(_ key: SecretBytes) throws(CryptoError) {
        try key.withKey { (bytes) throws(CryptoError) in try setKey(bytes) }
    }

    /// Does the same for the bytes of a key.
    func setKey(_ key: UnsafeRawBufferPointer) throws(CryptoError) {
        // Naming the algorithm again would free and allocate its state, which takes as long as the key schedule.
        let named = EVP_CIPHER_CTX_get0_cipher(handle) == nil ? algorithm : nil
        let keyed = withUnsafeBytes(of: Block.zero) { vector in
            EVP_CipherInit_ex2(
                handle, named, key.bindMemory(to: UInt8.self).baseAddress,
                vector.bindMemory(to: UInt8.self).baseAddress, encrypts ? 1 : 0, nil)
        }
        guard keyed == 1, EVP_CIPHER_CTX_set_padding(handle, 0) == 1 else { throw .failed("EVP_CipherInit_ex2 key") }
    }

    /// Wipes the key schedule, the vector and the last block (EVP_CIPHER_CTX_reset).
    func forgetKey() { EVP_CIPHER_CTX_reset(handle) }

    /// Sets the 16-byte initial vector of the next CBC chain, or the first counter of a CTR stream.
    @inline(__always)
    func setVector(_ vector: UnsafeRawPointer) throws(CryptoError) {
        let bytes = vector.assumingMemoryBound(to: UInt8.self)
        guard EVP_CipherInit_ex2(handle, nil, nil, bytes, encrypts ? 1 : 0, nil) == 1 else {
            throw .failed("EVP_CipherInit_ex2 vector")
        }
    }

    /// Transforms whole blocks into as many bytes elsewhere.
    @inline(__always)
    func transform(_ input: RawSpan, into output: UnsafeMutableRawPointer) throws(CryptoError) {
        try input.withUnsafeBytes { (bytes) throws(CryptoError) in
            guard let start = bytes.baseAddress else { return }
            try transform(start, into: output, size: bytes.count)
        }
    }

    /// Transforms `size` bytes, whole blocks unless in CTR mode. `output` may be `input`.
    @inline(__always)
    func transform(_ input: UnsafeRawPointer, into output: UnsafeMutableRawPointer, size: Int) throws(CryptoError) {
        let from = input.assumingMemoryBound(to: UInt8.self)
        let to = output.assumingMemoryBound(to: UInt8.self)
        var written: Int32 = 0
        let done =
            encrypts
            ? EVP_EncryptUpdate(handle, to, &written, from, Int32(truncatingIfNeeded: size))
            : EVP_DecryptUpdate(handle, to, &written, from, Int32(truncatingIfNeeded: size))
        guard done == 1, Int(written) == size else { throw .failed("EVP_CipherUpdate") }
    }
}

/// One EVP_MAC_CTX for Poly1305 (RFC 8439 section 2.5), and its owner. One thread at a time.
struct Poly1305Context: ~Copyable {
    static let keySize = 32
    static let tagSize = 16
    private let handle: OpaquePointer

    init(_ algorithm: OpaquePointer) throws(CryptoError) {
        guard let handle = EVP_MAC_CTX_new(algorithm) else { throw .failed("EVP_MAC_CTX_new POLY1305") }
        self.handle = handle
    }

    deinit { EVP_MAC_CTX_free(handle) }

    /// Overwrites the key of a message that failed half-way. After a finished message the key is already wiped.
    func forgetKey() {
        // A MAC context has no reset. With this key and an empty message, these calls cannot fail.
        withUnsafeTemporaryAllocation(byteCount: Self.keySize, alignment: 16) { zeros in
            zeros.initializeMemory(as: UInt8.self, repeating: 0)
            let bytes = zeros.bindMemory(to: UInt8.self).baseAddress
            var written = 0
            _ = EVP_MAC_init(handle, bytes, Self.keySize, nil)
            _ = EVP_MAC_final(handle, bytes, &written, Self.tagSize)
        }
    }

    /// Writes the 16-byte tag of `message` ‖ LE64(`trailer`) under the one-time key r ‖ s of 32 bytes.
    ///
    /// libcrypto clamps r, and wipes the key and the state when it returns the tag.
    @inline(__always)
    func authenticate(
        _ message: RawSpan, trailer: UInt64, key: UnsafeRawPointer, into tag: UnsafeMutableRawPointer
    ) throws(CryptoError) {
        var trailer = trailer.littleEndian
        var written = 0
        guard EVP_MAC_init(handle, key.assumingMemoryBound(to: UInt8.self), Self.keySize, nil) == 1,
            message.withUnsafeBytes({
                EVP_MAC_update(handle, $0.bindMemory(to: UInt8.self).baseAddress, $0.count)
            }) == 1,
            withUnsafeBytes(of: &trailer, { EVP_MAC_update(handle, $0.baseAddress, 8) }) == 1,
            EVP_MAC_final(handle, tag.assumingMemoryBound(to: UInt8.self), &written, Self.tagSize) == 1,
            written == Self.tagSize
        else { throw .failed("EVP_MAC POLY1305") }
    }
}
