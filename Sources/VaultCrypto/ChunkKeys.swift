internal import Synchronization

/// The keys of one file's chunks.
package final class ChunkKeys: Sendable {
    private static let lastIdentity = Atomic<UInt64>(0)

    /// Tells these keys from all others in this process; never 0.
    package let identity: UInt64
    let cipherKey: SecretBytes
    let macKey: SecretBytes
    let macR: SecretBytes

    /// Takes a cipher key and a MAC key of 32 bytes each, and Poly1305's r, of 16.
    package init(cipherKey: SecretBytes, macKey: SecretBytes, macR: SecretBytes) {
        precondition(
            cipherKey.count == 32 && macKey.count == 32 && macR.count == 16,
            "internal error: chunk keys of \(cipherKey.count), \(macKey.count) and \(macR.count) bytes")
        identity = Self.lastIdentity.add(1, ordering: .relaxed).newValue
        self.cipherKey = cipherKey
        self.macKey = macKey
        self.macR = macR
    }
}
