internal import COpenSSL

/// Secret bytes in the memory of ``SecretMemory``, wiped with the last reference, or forgotten in place before.
///
/// `@unchecked Sendable`: after the initialiser the bytes change only while `use` is closed, so that threads cannot
/// read them, and only the last owner frees them.
package final class SecretBytes: @unchecked Sendable {
    /// The number of bytes.
    package let count: Int
    private let slot: SecretSlot
    private let use = KeyUse()

    /// Makes `count` bytes, zero until `fill` has written them.
    ///
    /// Throws the errors of `fill`, `.library` if the kernel has no memory, and `.invalidInput` for a negative count.
    package init(count: Int, _ fill: (UnsafeMutableRawBufferPointer) throws(CryptoError) -> Void) throws(CryptoError) {
        guard count >= 0 else { throw .invalidInput("a secret of \(count) bytes") }
        let slot = try SecretMemory.allocate(count: count)
        do throws(CryptoError) {
            try fill(UnsafeMutableRawBufferPointer(start: slot.base, count: count))
        } catch {
            SecretMemory.deallocate(slot)
            throw error
        }
        self.count = count
        self.slot = slot
    }

    /// Copies bytes. The caller wipes the original. Traps without memory, as every Swift allocation does.
    package init(copying bytes: UnsafeRawBufferPointer) {
        guard let slot = try? SecretMemory.allocate(count: bytes.count) else {
            preconditionFailure("no memory for a secret of \(bytes.count) bytes")
        }
        if let source = bytes.baseAddress { slot.base.copyMemory(from: source, byteCount: bytes.count) }
        self.count = bytes.count
        self.slot = slot
    }

    deinit { SecretMemory.deallocate(slot) }

    /// Returns `count` bytes from the private random generator (RAND_priv_bytes).
    /// - Throws: `.library` if the generator fails or there is no memory.
    package static func random(count: Int) throws(CryptoError) -> SecretBytes {
        try SecretBytes(count: count) { (bytes) throws(CryptoError) in
            guard RAND_priv_bytes(bytes.baseAddress, Int32(bytes.count)) == 1 else { throw .failed("RAND_priv_bytes") }
        }
    }

    /// Calls `body` with the bytes, which are valid only until it returns. Any thread.
    ///
    /// Traps if the bytes are forgotten, because continuing with zeros as a key would be worse.
    /// - Throws: the error of `body`.
    package func withUnsafeBytes<R, E: Error>(_ body: (UnsafeRawBufferPointer) throws(E) -> R) throws(E) -> R {
        guard use.enter() else { preconditionFailure("internal error: use of a forgotten secret") }
        defer { use.leave() }
        return try body(UnsafeRawBufferPointer(start: slot.base, count: count))
    }

    /// Does the same for an operation that can fail. Throws `.keyForgotten`.
    func withKey<R>(_ body: (UnsafeRawBufferPointer) throws(CryptoError) -> R) throws(CryptoError) -> R {
        guard use.enter() else { throw .keyForgotten }
        defer { use.leave() }
        return try body(UnsafeRawBufferPointer(start: slot.base, count: count))
    }

    /// True if the bytes were forgotten and not restored.
    package var isForgotten: Bool { use.isClosed }

    /// Zeroes the bytes in place, until `refill` restores them. Waits for threads inside of ``withUnsafeBytes(_:)``, so
    /// it must not be called there. This and ``refill(from:)``: one thread at a time.
    package func forget() {
        use.close()
        OPENSSL_cleanse(slot.base, slot.capacity)
    }

    /// Restores the former bytes in place, from another secret of the same size.
    package func refill(from other: SecretBytes) {
        precondition(other !== self && other.count == count, "internal error: \(other.count) bytes for \(count)")
        use.close()
        other.withUnsafeBytes { bytes in
            if let source = bytes.baseAddress { slot.base.copyMemory(from: source, byteCount: bytes.count) }
        }
        use.reopen()
    }

    /// Returns true if the bytes are the same, compared in constant time (CRYPTO_memcmp).
    package func hasSameBytes(as other: SecretBytes) -> Bool {
        guard count == other.count else { return false }
        return withUnsafeBytes { own in
            other.withUnsafeBytes { CRYPTO_memcmp(own.baseAddress, $0.baseAddress, own.count) == 0 }
        }
    }

    /// Returns the bytes of two secrets, one after the other. Throws `.keyForgotten`.
    package static func joined(_ first: SecretBytes, _ second: SecretBytes) throws(CryptoError) -> SecretBytes {
        try SecretBytes(count: first.count + second.count) { (result) throws(CryptoError) in
            try first.withKey { result.copyMemory(from: $0) }
            try second.withKey { UnsafeMutableRawBufferPointer(rebasing: result[first.count...]).copyMemory(from: $0) }
        }
    }

    /// Returns a copy of the bytes in `range`, which must lie within `0..<count`.
    package func subrange(_ range: Range<Int>) -> SecretBytes {
        precondition(range.lowerBound >= 0 && range.upperBound <= count, "internal error: \(range) of \(count) bytes")
        return withUnsafeBytes { SecretBytes(copying: UnsafeRawBufferPointer(rebasing: $0[range])) }
    }
}
