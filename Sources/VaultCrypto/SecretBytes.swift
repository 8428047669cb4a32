internal import COpenSSL

/// Secret bytes in locked memory that is left out of core dumps, and wiped when the last reference goes.
///
/// `@unchecked Sendable`: the bytes never change after the initialiser, and are freed by the last owner only.
package final class SecretBytes: @unchecked Sendable {
    /// How many bytes there are.
    package let count: Int
    private let slot: SecretSlot

    /// Makes `count` bytes, zero until `fill` has written them.
    ///
    /// Throws what `fill` throws, or `.library` where the kernel gives no memory.
    package init(
        count: Int, _ fill: (UnsafeMutableRawBufferPointer) throws(CryptoError) -> Void
    ) throws(CryptoError) {
        guard count >= 0 else { throw .invalidInput("a secret of \(count) bytes") }
        guard let slot = SecretArena.allocate(count: count) else { throw .library(operation: "mmap") }
        do throws(CryptoError) {
            try fill(UnsafeMutableRawBufferPointer(start: slot.base, count: count))
        } catch {
            SecretArena.deallocate(slot)
            throw error
        }
        self.count = count
        self.slot = slot
    }

    /// Copies bytes; the caller wipes the original. Traps where there is no memory, as every Swift allocation does.
    package init(copying bytes: UnsafeRawBufferPointer) {
        guard let slot = SecretArena.allocate(count: bytes.count) else {
            preconditionFailure("no memory for a secret of \(bytes.count) bytes")
        }
        if let source = bytes.baseAddress { slot.base.copyMemory(from: source, byteCount: bytes.count) }
        self.count = bytes.count
        self.slot = slot
    }

    deinit { SecretArena.deallocate(slot) }

    /// `count` bytes from the private random generator (RAND_priv_bytes).
    package static func random(count: Int) throws(CryptoError) -> SecretBytes {
        try SecretBytes(count: count) { (bytes) throws(CryptoError) in
            guard RAND_priv_bytes(bytes.baseAddress, Int32(bytes.count)) == 1 else { throw .failed("RAND_priv_bytes") }
        }
    }

    /// Calls `body` with the bytes, which are valid only until it returns. Any thread.
    package func withUnsafeBytes<R, E: Error>(_ body: (UnsafeRawBufferPointer) throws(E) -> R) throws(E) -> R {
        defer { withExtendedLifetime(self) {} }
        return try body(UnsafeRawBufferPointer(start: slot.base, count: count))
    }

    /// A copy of the bytes in `range`, which must lie within `0..<count`.
    package func subrange(_ range: Range<Int>) -> SecretBytes {
        precondition(range.lowerBound >= 0 && range.upperBound <= count, "internal error: \(range) of \(count) bytes")
        return withUnsafeBytes { SecretBytes(copying: UnsafeRawBufferPointer(rebasing: $0[range])) }
    }
}
