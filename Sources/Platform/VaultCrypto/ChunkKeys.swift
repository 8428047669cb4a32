internal import Synchronization

/// The keys of one file's chunks.
package final class ChunkKeys: Sendable {
    private static let lastIdentity = Atomic<UInt64>(0)

    private let currentIdentity: Atomic<UInt64>
    let cipherKey, macKey, macR: SecretBytes

    /// Makes keys from a cipher key and a MAC key of 32 bytes each, and Poly1305's r, of 16.
    package init(cipherKey: SecretBytes, macKey: SecretBytes, macR: SecretBytes) {
        precondition(
            cipherKey.count == 32 && macKey.count == 32 && macR.count == 16,
            "internal error: chunk keys of \(cipherKey.count), \(macKey.count) and \(macR.count) bytes")
        currentIdentity = Atomic(Self.newIdentity())
        self.cipherKey = cipherKey
        self.macKey = macKey
        self.macR = macR
    }

    /// A number that distinguishes these keys from all others in this process, and from themselves before they were
    /// last forgotten, so that a cipher with the old schedules does not use them again. 0 while they are forgotten.
    package var identity: UInt64 { currentIdentity.load(ordering: .acquiring) }

    /// Zeroes the keys in place. A running ``ChunkCipher`` continues to the end of its run, and keeps the schedules
    /// until its thread calls ``ChunkCipher/forgetKeys()``. This and ``refill(from:)``: one thread at a time.
    package func forget() {
        currentIdentity.store(0, ordering: .releasing)
        for key in [cipherKey, macKey, macR] { key.forget() }
    }

    /// Restores the forgotten keys from fresh copies of the same keys.
    package func refill(from other: ChunkKeys) {
        currentIdentity.store(0, ordering: .releasing)
        cipherKey.refill(from: other.cipherKey)
        macKey.refill(from: other.macKey)
        macR.refill(from: other.macR)
        currentIdentity.store(Self.newIdentity(), ordering: .releasing)
    }

    private static func newIdentity() -> UInt64 { lastIdentity.add(1, ordering: .relaxed).newValue }
}
