internal import LinuxSystem
package import VaultCrypto

/// Identifies a key. Paths and URIs are bytes without NUL.
package enum KeyName: Hashable, Sendable {
    /// The one key of the view, given at mount.
    case shared
    /// A key file that `view.json` names: absolute, or relative to the source. Without a cipher, the key's length
    /// decides.
    case manifest(path: [UInt8], cipher: ViewCipher?)
    /// The key command's key of a file. The path is relative to the source.
    case path([UInt8], cipher: ViewCipher?)
    /// The key of an `EXT-X-KEY`, with its URI as in the playlist. The playlist's directory is relative to the source
    /// (empty for the source itself).
    case uri([UInt8], directory: [UInt8], cipher: ViewCipher = .aes128CBC)
    /// A key derived from the view's passphrase. All files have the same derivation, but for the cipher.
    case derived(salt: [UInt8], cipher: ViewCipher)
    /// The key that the boxes of an MP4 file name. With the URI of the playlist's `EXT-X-KEY`, if there is one. It means
    /// this key alone only if the file has no other. The directory is that of the playlist or the file.
    case content(KeyID, uri: [UInt8]?, isOfURI: Bool, directory: [UInt8])

    /// The key of `--key KID=FILE`.
    package static func given(_ id: KeyID) -> KeyName { .content(id, uri: nil, isOfURI: false, directory: []) }

    /// True if it can come from the key command.
    package var mayComeFromCommand: Bool {
        switch self {
        case .path, .uri, .content: true
        case .shared, .manifest, .derived: false
        }
    }

    /// True if an open shows that the key is the right one. The samples of an MP4 file have no padding, so any key opens
    /// it.
    var isProvable: Bool { if case .content = self { false } else { true } }

    /// True if another fetch can return another key.
    var mayChange: Bool {
        switch self {
        case .manifest, .path, .uri, .content: true
        case .shared, .derived: false
        }
    }

    /// The key of a file in `cbc` and `cbc-chunks`: from `view.json`, otherwise given at mount, otherwise from the key
    /// command.
    package static func ofFile(
        _ path: [UInt8], entry: ViewManifest.Entry?, hasSharedKey: Bool, cipher: ViewCipher?
    ) -> KeyName {
        let cipher = entry?.cipher ?? cipher
        if let key = entry?.key { return .manifest(path: key, cipher: cipher) }
        return hasSharedKey ? .shared : .path(path, cipher: cipher)
    }

    /// The same for all relative URIs that lead to one path, from playlists in any directory.
    var normalized: KeyName {
        guard case .uri(let uri, let directory, let cipher) = self,
            let path = HlsURI.paths(uri, directory: directory).last
        else { return self }
        return .uri(HlsURI.normalized(path), directory: [], cipher: cipher)
    }
}

/// A key, with its initial vector if it was derived together with it (`openssl enc`).
///
/// Make a cipher of it and let it go. Its bytes are wiped with the last reference.
package struct KeyMaterial: Sendable {
    package let key: SecretBytes
    /// 16 bytes.
    package let iv: SecretBytes?

    package init(key: SecretBytes, iv: SecretBytes? = nil) {
        self.key = key
        self.iv = iv
    }

    /// - Throws: `noKey` if the key's length is not that of `cipher`. The view's one key can be used for a file to which
    ///   `view.json` gives another cipher.
    func check(fits cipher: ViewCipher, path: [UInt8]) throws(ViewError) {
        guard key.count == cipher.keySize else {
            throw .noKey(
                "\(shown(path)): \(cipher.rawValue) takes a key of \(cipher.keySize) bytes, this one has \(key.count)")
        }
    }
}
