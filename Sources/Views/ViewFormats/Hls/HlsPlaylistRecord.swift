internal import LinuxSystem

/// The result of one reading of a playlist, as far as `HlsState` needs it. Immutable, even if the file changes later.
final class HlsPlaylistRecord: Sendable {
    let path: [UInt8]
    let stamp: FileStamp
    /// False if the file is shown as it is.
    let isPlaylist: Bool
    let fault: PlaylistError?
    /// The reason for which the file, although it should be a playlist, is shown as it is.
    let misreading: PlaylistError?
    /// The encrypted references that stay as they are, whatever is decided about files.
    let left: HlsLeft
    /// The endings of the names of encrypted segments.
    let endings: Set<[UInt8]>
    /// The first files of a playlist without keys.
    let clear: [(target: HlsReading.Target, bytes: Range<UInt64>?)]
    let problems: [HlsProblem]
    /// The files about which the playlist can have claims, and the maximum number of claims.
    let files: Set<FileIdentity>
    let claimCount: Int
    /// The keys named by the boxes of its files.
    let contentKeys: Set<KeyName>

    /// - Parameter refusal: the reason for which the playlist's claims are not used.
    init(_ reading: HlsReading, refusal: PlaylistError? = nil) {
        path = reading.path
        stamp = reading.stamp
        fault = refusal ?? reading.fault
        misreading = reading.misreading
        isPlaylist = reading.playlist != nil || fault != nil
        left = reading.left
        problems =
            (refusal.map { [HlsProblem(path: reading.path, line: $0.line, text: $0.text)] } ?? []) + reading.problems
        files = refusal == nil ? reading.files : []
        claimCount = refusal == nil ? reading.claimCount : 0
        endings = reading.endings
        clear = reading.clear
        contentKeys = reading.contentKeys
    }

    var error: ViewError? { fault.map(error) }

    func error(_ defect: PlaylistError) -> ViewError {
        .malformed("\(HlsProblem.location(path, line: defect.line)): \(defect.text)")
    }
}
