internal import COpenSSL

/// libcrypto's random generator, RAND_bytes(3). Any thread.
package enum SecureRandom {
    package static func fill(_ bytes: UnsafeMutableRawBufferPointer) throws(CryptoError) {
        guard let base = bytes.baseAddress else { return }
        try check(RAND_bytes(base.assumingMemoryBound(to: UInt8.self), Int32(bytes.count)), "RAND_bytes")
    }

    package static func bytes(count: Int) throws(CryptoError) -> [UInt8] {
        var result = [UInt8](repeating: 0, count: count)
        try result.withMutableBytes { (bytes) throws(CryptoError) in try fill(bytes) }
        return result
    }

    package static func integer() throws(CryptoError) -> UInt64 {
        try bytes(count: 8).reduce(0) { $0 << 8 | UInt64($1) }
    }
}
