/// What one playlist says of some bytes of one file.
struct HlsClaim: Sendable {
    enum Use: Sendable {
        case plain
        case encrypted(HlsEncryption)
        /// The whole file is encrypted with this key, says an I-frame playlist, which does not know where the segments in
        /// it begin: the vector is for want of a better one.
        case frames(HlsEncryption)
        /// The playlist cannot be shown decrypted.
        case failed
    }

    /// Ciphertext offsets; nil: the whole file.
    var bytes: Range<UInt64>?
    var use: Use
    var playlist: HlsPlaylistRecord
    var line: Int

    /// Whether both can be true of the same bytes.
    func agrees(with other: HlsClaim) -> Bool {
        switch (use, other.use) {
        case (.plain, .plain): true
        case (.encrypted(let one), .encrypted(let other)): one.means(other)
        default: false
        }
    }

    var place: HlsPlace { HlsPlace(path: playlist.path, line: line) }
}

/// How bytes of a segment are encrypted: AES-128-CBC, PKCS#7.
package struct HlsEncryption: Equatable, Sendable {
    package var key: HlsKeyName
    package var vector: InitialVector

    func means(_ other: HlsEncryption) -> Bool {
        vector == other.vector && key.means(other.key)
    }
}

/// What was read of one playlist, whatever its file has become since. Never changes.
final class HlsPlaylistRecord: Sendable {
    let path: [UInt8]
    let stamp: HlsStamp
    /// Nil: it is no playlist.
    let kind: Playlist.Kind?
    let fault: PlaylistError?
    /// Bytes of what the mount shows, where no byte range in it changes.
    let sizeWithoutKeys: UInt64

    init(path: [UInt8], stamp: HlsStamp, playlist: Playlist?, fault: PlaylistError?) {
        self.path = path
        self.stamp = stamp
        self.fault = fault
        kind = playlist?.kind
        sizeWithoutKeys = playlist?.sizeWithoutKeys ?? 0
    }

    var error: ViewError? {
        fault.map { .malformed("\(HlsPlace(path: path, line: $0.line)): \($0.text)") }
    }
}
