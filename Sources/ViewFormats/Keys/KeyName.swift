/// Says which key is meant, without the key. Paths and URIs are bytes without NUL.
package enum KeyName: Hashable, Sendable {
    /// The view's one key, given at mount.
    case shared
    /// A key file that `view.json` names: relative to the source, or absolute. No cipher: the length tells.
    case manifest(path: [UInt8], cipher: ViewCipher?)
    /// What the key command answers for a file; the path is relative to the source.
    case path([UInt8], cipher: ViewCipher?)
    /// The key of an `EXT-X-KEY` in a playlist of a directory, whose path is relative to the source (empty: itself).
    case uri([UInt8], directory: [UInt8])
    /// Derived from the view's passphrase; how is the same for all files, but for the cipher.
    case derived(salt: [UInt8], cipher: ViewCipher)

    /// Whether the key command may be asked for it.
    package var mayTakeCommand: Bool {
        switch self {
        case .path, .uri: true
        case .shared, .manifest, .derived: false
        }
    }

    /// Whether it may be another key when it is asked for again.
    var mayChange: Bool {
        switch self {
        case .manifest, .path, .uri: true
        case .shared, .derived: false
        }
    }

    /// The key of a file of any format but hls and openssl: what `view.json` names, else the one given at mount, else what
    /// the key command answers.
    package static func ofFile(
        _ path: [UInt8], entry: ViewManifest.Entry?, hasSharedKey: Bool, cipher: ViewCipher?
    ) -> KeyName {
        let cipher = entry?.cipher ?? cipher
        if let key = entry?.key { return .manifest(path: key, cipher: cipher) }
        return hasSharedKey ? .shared : .path(path, cipher: cipher)
    }
}
