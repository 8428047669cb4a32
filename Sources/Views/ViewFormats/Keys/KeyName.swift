internal import LinuxSystem
package import VaultCrypto

/// Identifies a key. Paths and URIs are bytes without NUL.
package enum KeyName: Hashable, Sendable {
    /// The one key of the view, given at mount.
    case shared
    /// A key file named by `view.json`: absolute, or relative to the source. Without a cipher, the key's length
    /// decides.
    case manifest(path: [UInt8], cipher: ViewCipher?)
    /// The key command's key of a file. The path is relative to the source.
    case path([UInt8], cipher: ViewCipher?)
    /// The key of an `EXT-X-KEY`, with its URI as in the playlist. The playlist's directory is relative to the source
    /// (empty for the source itself).
    case uri([UInt8], directory: [UInt8], cipher: ViewCipher = .aes128CBC)
    /// A key derived from the view's passphrase. Files differ in the salt and the cipher of the derivation only.
    case derived(salt: [UInt8], cipher: ViewCipher)
    /// The key named by an MP4 file's boxes, with the URI of the playlist's `EXT-X-KEY`, if there is one. The URI means
    /// this key alone only if the file has one key. The directory is that of the playlist or the file.
    case content(KeyID, uri: [UInt8]?, isOfURI: Bool, directory: [UInt8])

    /// The key of `--key KID=FILE`.
    package static func given(_ id: KeyID) -> KeyName { .content(id, uri: nil, isOfURI: false, directory: []) }

    /// True if the key command may be asked for the key.
    package var mayComeFromCommand: Bool {
        switch self {
        case .path, .uri, .content: true
        case .shared, .manifest, .derived: false
        }
    }

    /// True if an open proves the key. An MP4 file's samples have no padding, so any key opens the file.
    var isProvable: Bool { if case .content = self { false } else { true } }

    /// True if another fetch can return another key.
    var mayChange: Bool { if case .manifest = self { true } else { mayComeFromCommand } }

    /// Returns the key of a file in `cbc` and `cbc-chunks`: from `view.json`, or else given at mount, or else from the
    /// key command.
    package static func ofFile(
        _ path: [UInt8], entry: ViewManifest.Entry?, hasSharedKey: Bool, cipher: ViewCipher?
    ) -> KeyName {
        let cipher = entry?.cipher ?? cipher
        if let key = entry?.key { return .manifest(path: key, cipher: cipher) }
        return hasSharedKey ? .shared : .path(path, cipher: cipher)
    }

    /// The name in a form equal for all relative URIs to one path, from playlists in any directory.
    var normalized: KeyName {
        guard case .uri(let uri, let directory, let cipher) = self,
            let path = HlsURI.paths(uri, directory: directory).last
        else { return self }
        return .uri(path, directory: [], cipher: cipher)
    }
}

/// A key, with its initial vector if both were derived together (`openssl enc`).
///
/// Make a cipher of it and let it go, because its bytes are wiped with the last reference.
package struct KeyMaterial: Sendable {
    package let key: SecretBytes
    /// 16 bytes.
    package let iv: SecretBytes?

    package init(key: SecretBytes, iv: SecretBytes? = nil) {
        self.key = key
        self.iv = iv
    }

    /// Checks the length. The view's one key can be used for a file with another cipher in `view.json`.
    /// - Throws: `noKey` if the key's length is not that of `cipher`.
    func check(fits cipher: ViewCipher, path: [UInt8]) throws(ViewError) {
        guard key.count == cipher.keySize else {
            throw .noKey(
                "\(shown(path)): \(cipher.rawValue) takes a key of \(cipher.keySize) bytes, this one has \(key.count)")
        }
    }
}
