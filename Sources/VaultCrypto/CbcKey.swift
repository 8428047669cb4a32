internal import Synchronization

/// An AES key that somebody else's CBC chains were encrypted with: 16, 24 or 32 bytes. Any thread.
package final class CbcKey: Sendable {
    private static let lastIdentity = Atomic<UInt64>(0)

    private let currentIdentity: Atomic<UInt64>
    let bytes: SecretBytes
    /// Recognises the same key after it was forgotten.
    private let digest: SecretBytes

    /// Throws `.invalidInput` if the key is not of 16, 24 or 32 bytes.
    package init(_ bytes: SecretBytes) throws(CryptoError) {
        guard [16, 24, 32].contains(bytes.count) else { throw .invalidInput("an AES key of \(bytes.count) bytes") }
        currentIdentity = Atomic(Self.newIdentity())
        self.bytes = bytes
        digest = try Sha256.digest(bytes)
    }

    /// The size in bytes.
    package var size: Int { bytes.count }

    /// Tells this key from all others in this process, and from itself before it was last forgotten, so that a
    /// decryptor that still has its schedule does not use it again. 0 while it is forgotten.
    package var identity: UInt64 { currentIdentity.load(ordering: .acquiring) }

    package var isForgotten: Bool { identity == 0 }

    /// Zeroes the key in place. A ``CbcDecryptor`` at work goes on to the end of its run, and keeps the schedule until
    /// its thread calls ``CbcDecryptor/forgetKeys()``. This and ``refill(from:)``: one thread at a time.
    package func forget() {
        currentIdentity.store(0, ordering: .releasing)
        bytes.forget()
    }

    /// Restores the forgotten key from a fresh copy. Returns false, and changes nothing, if that is another key.
    package func refill(from other: CbcKey) -> Bool {
        guard size == other.size, digest.hasSameBytes(as: other.digest) else { return false }
        currentIdentity.store(0, ordering: .releasing)
        bytes.refill(from: other.bytes)
        currentIdentity.store(Self.newIdentity(), ordering: .releasing)
        return true
    }

    private static func newIdentity() -> UInt64 { lastIdentity.add(1, ordering: .relaxed).newValue }
}
