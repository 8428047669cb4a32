internal import Synchronization

/// The keys of one file's chunks. Immutable, any thread.
package final class ChunkKeys: Sendable {
    private static let made = Atomic<UInt64>(0)

    /// No other instance in this process has had it, and it is never 0: tells whether a cipher has these keys set.
    package let identity: UInt64
    let cipherKey: SecretBytes
    let macKey: SecretBytes
    let macR: SecretBytes

    /// - Parameters: 32, 32 and 16 bytes.
    package init(cipherKey: SecretBytes, macKey: SecretBytes, macR: SecretBytes) {
        precondition(
            cipherKey.count == 32 && macKey.count == 32 && macR.count == 16, "internal error: key sizes")
        self.cipherKey = cipherKey
        self.macKey = macKey
        self.macR = macR
        identity = Self.made.add(1, ordering: .relaxed).newValue
    }
}
