package import VaultCrypto

/// The keys derived from a file secret (FileFormat, File header): those of one file's chunks, header state and
/// attributes.
///
/// They outlive the class key, so that an open file can be grown and sealed when its class is locked. Any thread.
package final class FileKeys: Sendable {
    /// The keys of the file's chunks.
    package let chunk: ChunkKeys
    /// The 64-byte SIV key of the file's extended attributes.
    package let attributeKey: SecretBytes
    /// The 32-byte HMAC key of the header's state.
    let stateKey: SecretBytes

    init(secret: SecretBytes, vault: VaultID) throws(FormatError) {
        let keys = try KeyDerivation.derive(secret, vault, info: "vaultfs 1 file", count: 176)
        chunk = ChunkKeys(
            cipherKey: keys.subrange(0..<32), macKey: keys.subrange(32..<64), macR: keys.subrange(64..<80))
        stateKey = keys.subrange(80..<112)
        attributeKey = keys.subrange(112..<176)
    }

    package var isForgotten: Bool { stateKey.isForgotten }

    /// Zeroes the keys in place. Their users then get `keyForgotten`. This and ``refill(from:)``: one thread at a time.
    package func forget() {
        chunk.forget()
        stateKey.forget()
        attributeKey.forget()
    }

    /// Restores the keys from fresh copies of the same file's keys.
    package func refill(from other: FileKeys) {
        chunk.refill(from: other.chunk)
        stateKey.refill(from: other.stateKey)
        attributeKey.refill(from: other.attributeKey)
    }
}
