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
