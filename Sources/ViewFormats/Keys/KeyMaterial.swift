internal import LinuxSystem
package import VaultCrypto

/// A key that was found, and the initial vector where that comes with it (`openssl enc` derives both).
///
/// Whoever takes one makes a cipher of it and lets it go: its bytes are wiped when the last reference goes.
package struct KeyMaterial: Sendable {
    package let key: SecretBytes
    /// 16 bytes.
    package let iv: SecretBytes?

    package init(key: SecretBytes, iv: SecretBytes? = nil) {
        self.key = key
        self.iv = iv
    }

    /// - Throws: `noKey` where the key is not one of `cipher`: the view's one key may be used for a file that
    ///   `view.json` gives another cipher.
    package func check(fits cipher: ViewCipher, path: [UInt8]) throws(ViewError) {
        guard key.count == cipher.keySize else {
            throw .noKey(
                "\(shown(path)): \(cipher.rawValue) takes a key of \(cipher.keySize) bytes, this one has \(key.count)")
        }
    }
}
