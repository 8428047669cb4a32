internal import COpenSSL

/// Random bytes from libcrypto's generator (RAND_bytes) for salts, ids and initial vectors, which are not secret.
package enum SecureRandom {
    /// Fills the buffer. Any thread. Throws `.library` if the generator fails, `.invalidInput` for 2 GiB or more.
    package static func fill(_ buffer: UnsafeMutableRawBufferPointer) throws(CryptoError) {
        guard let size = Int32(exactly: buffer.count) else {
            throw .invalidInput("\(buffer.count) random bytes in one call")
        }
        guard size > 0 else { return }
        guard RAND_bytes(buffer.baseAddress, size) == 1 else { throw .failed("RAND_bytes") }
    }

    /// Returns `count` random bytes. Any thread.
    /// - Throws: `.library` if the generator fails, `.invalidInput` for a negative count.
    package static func bytes(count: Int) throws(CryptoError) -> [UInt8] {
        guard count >= 0, let size = Int32(exactly: count) else { throw .invalidInput("\(count) random bytes") }
        var bytes = [UInt8](repeating: 0, count: count)
        guard count == 0 || RAND_bytes(&bytes, size) == 1 else { throw .failed("RAND_bytes") }
        return bytes
    }

    /// Returns a random integer, with all 64 bits random. Any thread.
    /// - Throws: `.library` if the generator fails.
    package static func integer() throws(CryptoError) -> UInt64 {
        var value: UInt64 = 0
        guard RAND_bytes(&value, 8) == 1 else { throw .failed("RAND_bytes") }
        return value
    }
}
