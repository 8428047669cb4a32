internal import COpenSSL

/// A secret of fixed size in `SecretMemory`, zeroed when the last reference goes. Immutable, so any thread may read it.
package final class SecretBytes: @unchecked Sendable {
    // @unchecked: the memory is written only in `init`.
    package let count: Int
    private let memory: UnsafeMutableRawPointer

    /// - Parameter fill: given zeroed memory of `count` bytes.
    package init(
        count: Int, _ fill: (UnsafeMutableRawBufferPointer) throws(CryptoError) -> Void
    ) throws(CryptoError) {
        self.count = count
        memory = try SecretMemory.allocate(count)
        try fill(UnsafeMutableRawBufferPointer(start: memory, count: count))
    }

    /// A copy; the original is the caller's to wipe.
    package init(copying bytes: UnsafeRawBufferPointer) {
        count = bytes.count
        do { memory = try SecretMemory.allocate(bytes.count) } catch { preconditionFailure("out of memory for a secret") }
        if let source = bytes.baseAddress { memory.copyMemory(from: source, byteCount: bytes.count) }
    }

    deinit {
        SecretMemory.release(memory, count: count)
    }

    /// Fresh random bytes.
    package static func random(count: Int) throws(CryptoError) -> SecretBytes {
        try SecretBytes(count: count) { (bytes) throws(CryptoError) in try SecureRandom.fill(bytes) }
    }

    package func withUnsafeBytes<Result, Failure: Error>(
        _ body: (UnsafeRawBufferPointer) throws(Failure) -> Result
    ) throws(Failure) -> Result {
        try body(UnsafeRawBufferPointer(start: memory, count: count))
    }

    /// A copy of a part.
    package func subrange(_ range: Range<Int>) -> SecretBytes {
        withUnsafeBytes { SecretBytes(copying: UnsafeRawBufferPointer(rebasing: $0[range])) }
    }
}

/// Zeroes memory that held a secret, in a way the compiler keeps (OPENSSL_cleanse).
func cleanse(_ bytes: UnsafeMutableRawBufferPointer) {
    OPENSSL_cleanse(bytes.baseAddress, bytes.count)
}
