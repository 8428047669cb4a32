internal import COpenSSL

/// One EVP_MAC_CTX for Poly1305 (RFC 8439 section 2.5), and its owner. Not for two threads at once.
struct Poly1305Context: ~Copyable {
    static let keySize = 32
    static let tagSize = 16
    private let handle: OpaquePointer

    init(_ algorithm: OpaquePointer) throws(CryptoError) {
        guard let handle = EVP_MAC_CTX_new(algorithm) else { throw .failed("EVP_MAC_CTX_new POLY1305") }
        self.handle = handle
    }

    deinit { EVP_MAC_CTX_free(handle) }

    /// Overwrites the key of a message that failed half-way. A finished message leaves nothing of its key.
    func forgetKey() {
        // A MAC context has no reset. With this key and without a message nothing can fail.
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
    /// libcrypto clamps r, and wipes the key and the state as it gives the tag.
    @inline(__always)
    func authenticate(
        _ message: UnsafeRawPointer, size: Int, trailer: UInt64, key: UnsafeRawPointer,
        into tag: UnsafeMutableRawPointer
    ) throws(CryptoError) {
        var trailer = trailer.littleEndian
        var written = 0
        guard EVP_MAC_init(handle, key.assumingMemoryBound(to: UInt8.self), Self.keySize, nil) == 1,
            EVP_MAC_update(handle, message.assumingMemoryBound(to: UInt8.self), size) == 1,
            withUnsafeBytes(of: &trailer, { EVP_MAC_update(handle, $0.baseAddress, 8) }) == 1,
            EVP_MAC_final(handle, tag.assumingMemoryBound(to: UInt8.self), &written, Self.tagSize) == 1,
            written == Self.tagSize
        else { throw .failed("EVP_MAC POLY1305") }
    }
}
