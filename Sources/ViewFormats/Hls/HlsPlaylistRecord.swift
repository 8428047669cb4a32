internal import LinuxSystem

/// What was read of one playlist, whatever its file has become since. Never changes.
final class HlsPlaylistRecord: Sendable {
    let path: [UInt8]
    let stamp: FileStamp
    /// Nil: it is no playlist.
    let kind: Playlist.Kind?
    let fault: PlaylistError?
    /// Bytes of what the mount shows, where no byte range in it changes.
    let sizeWithoutKeys: UInt64

    init(path: [UInt8], stamp: FileStamp, playlist: Playlist?, fault: PlaylistError?) {
        self.path = path
        self.stamp = stamp
        self.fault = fault
        kind = playlist?.kind
        sizeWithoutKeys = playlist?.sizeWithoutKeys ?? 0
    }

    /// Whether it is shown otherwise than it is, or not at all.
    var isPlaylist: Bool { kind != nil || fault != nil }

    var error: ViewError? {
        fault.map { .malformed("\(HlsPlace(path: path, line: $0.line)): \($0.text)") }
    }
}
