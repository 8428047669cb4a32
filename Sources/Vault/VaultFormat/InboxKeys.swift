package import VaultCrypto

/// The keys for files made while the vault is locked (FileFormat, Inbox): an X25519 key pair, and the sender key. With
/// the public key and the sender key the daemon can wrap the secret of a new file, but only the private key opens a
/// wrap. Any thread.
package final class InboxKeys: Sendable {
    private let vault: VaultID
    private let publicKey: [UInt8]
    private let privateKey: SecretBytes
    private let senderKey: SecretBytes

    /// - Parameter classKey: the key of the class unless-open.
    /// - Throws: `cryptography`; `keyForgotten`.
    package init(classKey: SecretBytes, vault: VaultID) throws(FormatError) {
        self.vault = vault
        (privateKey, senderKey) = try Self.derive(classKey, vault)
        publicKey = try cryptography("inbox key", X25519.publicKey(of: privateKey))
    }

    private static func derive(
        _ classKey: SecretBytes, _ vault: VaultID
    ) throws(FormatError) -> (privateKey: SecretBytes, senderKey: SecretBytes) {
        let keys = try KeyDerivation.derive(classKey, vault, info: "vaultfs 1 inbox", count: X25519.size + 32)
        return (keys.subrange(0..<X25519.size), keys.subrange(X25519.size..<keys.count))
    }

    /// Returns the cipher that wraps one new file's secret, and the public key for the file's header. The ephemeral
    /// private key is wiped.
    /// - Throws: `keyForgotten` without the sender key; `cryptography`.
    package func makeWrap() throws(FormatError) -> (cipher: SivCipher, ephemeralKey: [UInt8]) {
        let ephemeral = try cryptography("inbox key", SecretBytes.random(count: X25519.size))
        defer { ephemeral.forget() }
        let ephemeralKey = try cryptography("inbox key", X25519.publicKey(of: ephemeral))
        let shared = try cryptography("inbox key", X25519.sharedSecret(ephemeral, publicKey))
        return (try cipher(shared, ephemeralKey), ephemeralKey)
    }

    /// Returns the cipher that opens the wrap of a header with this public key. Throws `doesNotAuthenticate` for a
    /// public key that no valid header can have.
    package func cipher(ofWrap ephemeralKey: [UInt8]) throws(FormatError) -> SivCipher {
        try cipher(
            cryptography("header: file secret", X25519.sharedSecret(privateKey, ephemeralKey)), ephemeralKey)
    }

    private func cipher(_ shared: SecretBytes, _ ephemeralKey: [UInt8]) throws(FormatError) -> SivCipher {
        defer { shared.forget() }
        let secret = try cryptography("inbox key", SecretBytes.joined(shared, senderKey))
        defer { secret.forget() }
        let info = Array("vaultfs 1 inbox wrap".utf8) + ephemeralKey + publicKey
        let key = try cryptography(
            "inbox key", Hkdf.derive(secret: secret, salt: vault.bytes, info: info, count: SivCipher.keySize))
        return try cryptography("inbox key", SivCipher(key: key))
    }

    /// Wipes the private key: from now on, existing wraps stay closed, but new ones can be made.
    package func forgetPrivateKey() { privateKey.forget() }

    /// Wipes the sender key: from now on, the daemon cannot make wraps.
    package func forgetSenderKey() { senderKey.forget() }

    /// Restores the wiped keys. `classKey` must be the same as before.
    /// - Throws: `cryptography`; `keyForgotten`.
    package func restore(classKey: SecretBytes) throws(FormatError) {
        let keys = try Self.derive(classKey, vault)
        if privateKey.isForgotten { privateKey.refill(from: keys.privateKey) }
        if senderKey.isForgotten { senderKey.refill(from: keys.senderKey) }
    }
}
