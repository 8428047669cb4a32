internal import Glibc
internal import LinuxSystem
internal import SystemPackage

/// One reading of a playlist, with the files that its URIs mean.
struct HlsReading {
    /// Maximum number of problems of one playlist.
    private static let maximumProblems = 16

    /// A file of the tree that the playlist refers to.
    struct Target {
        var identity: FileIdentity
        var path: [UInt8]
        var size: UInt64
    }

    let path: [UInt8]
    let stamp: FileStamp
    /// Nil if the file is not a playlist, or too large.
    private(set) var playlist: Playlist?
    /// Why the playlist cannot be shown decrypted.
    private(set) var fault: PlaylistError?
    /// One for each reference. Nil if it is not a file of the tree.
    private(set) var targets: [Target?] = []
    /// Hashes of the paths that segments can have. A file that appears later under such a path is a segment.
    private(set) var names: Set<Int> = []
    private(set) var problems: [HlsProblem] = []

    /// - Parameter root: the source.
    /// - Throws: if the path is not a regular file, or cannot be read.
    init(_ path: [UInt8], in root: Descriptor) throws(StoreError) {
        let file = try root.regularFile(beneath: path)
        self.path = path
        // Before the text, so that the next check notices a change in between.
        stamp = FileStamp(try file.status())
        if let text = try file.readToEnd(limit: Playlist.maximumSize) {
            do throws(PlaylistError) { playlist = try Playlist.parse(text) } catch {
                // An .m3u can be a list of anything.
                if path.suffix(5).elementsEqual(".m3u8".utf8) { report(error) }
            }
            fault = playlist?.fault
        } else {
            fault = PlaylistError(line: 0, text: Playlist.tooLarge)
        }
        if let defect = fault ?? playlist?.complaint { report(defect) }
        if let playlist { resolve(playlist, in: root) }
    }

    private mutating func report(_ defect: PlaylistError) {
        guard problems.count <= Self.maximumProblems else { return }
        let isLast = problems.count == Self.maximumProblems
        problems.append(HlsProblem(path: path, line: defect.line, text: isLast ? "and more like these" : defect.text))
    }

    // MARK: URIs

    private mutating func resolve(_ playlist: Playlist, in root: Descriptor) {
        let directory = HlsURI.directory(of: path)
        var last: ArraySlice<UInt8> = []
        targets.reserveCapacity(playlist.references.count)
        for reference in playlist.references {
            let uri = playlist.text[reference.uri]
            // A thousand byte ranges of one file are looked up once.
            let isSame = !targets.isEmpty && uri == last
            targets.append(isSame ? targets[targets.count - 1] : resolve(Array(uri), reference, directory, in: root))
            last = uri
        }
    }

    private mutating func resolve(
        _ uri: [UInt8], _ reference: Playlist.Reference, _ directory: [UInt8], in root: Descriptor
    ) -> Target? {
        let paths = HlsURI.paths(uri, directory: directory)
        for path in paths { names.insert(HlsURI.normalized(path).hashValue) }
        var reason: String?
        for path in paths {
            do throws(StoreError) {
                let status = try root.opened(beneath: path).status()
                guard status.st_mode & S_IFMT == S_IFREG else { throw .damaged("it is not a regular file") }
                return Target(identity: FileIdentity(status), path: path, size: UInt64(max(status.st_size, 0)))
            } catch {
                // Report the first path: it is the one that RFC 3986 gives.
                reason = reason ?? ": \(Self.text(error))"
            }
        }
        let defect = reason ?? " is not relative to the playlist, and stays as it is"
        report(PlaylistError(line: reference.line, text: shown(uri) + defect))
        return nil
    }

    static func text(_ error: StoreError) -> String {
        switch error {
        case .system(Errno(rawValue: EXDEV)): "points outside the tree"
        case .system(.noSuchFileOrDirectory): "there is no such file"
        default: error.reason
        }
    }

    // MARK: Claims

    /// Each reference with its file.
    var segments: some Sequence<(Playlist.Reference, Target)> {
        zip(playlist?.references ?? [], targets).lazy.compactMap { reference, target in target.map { (reference, $0) } }
    }

    /// Passes on each claim about a file, one by one, because there may be half a million.
    func forEachClaim(of record: HlsPlaylistRecord, _ body: (Target, HlsClaim) -> Void) {
        let directory = HlsURI.directory(of: path)
        let keys = playlist?.keys.map { KeyName.uri($0, directory: directory) } ?? []
        for (reference, target) in segments {
            let use: HlsClaim.Use
            if record.fault != nil {
                use = .failed
            } else if let encryption = reference.encryption {
                let used = HlsSegment.Encryption(key: keys[encryption.key], vector: encryption.vector)
                use = reference.role == .frame ? .frames(used) : .encrypted(used)
            } else if reference.role == .frame {
                continue
            } else {
                use = .plain
            }
            body(target, HlsClaim(bytes: reference.bytes, use: use, playlist: record, line: reference.line))
        }
    }
}

/// The result of one reading of a playlist, and what `HlsState` needs of it. Immutable, even if the file changes later.
final class HlsPlaylistRecord: Sendable {
    let path: [UInt8]
    let stamp: FileStamp
    /// False if the file is shown as it is.
    let isPlaylist: Bool
    let fault: PlaylistError?
    /// Length in bytes of the mount's text, if no byte range in it changes.
    let sizeWithoutKeys: UInt64
    let problems: [HlsProblem]
    /// The files that the playlist can have claims about, and the maximum number of claims.
    let files: [FileIdentity]
    let claimCount: Int
    /// The files that the playlist's text has byte ranges of.
    let ranged: Set<FileIdentity>
    let names: Set<Int>

    /// - Parameter refusal: why the playlist's claims are not used.
    init(_ reading: HlsReading, refusal: PlaylistError? = nil) {
        let playlist = reading.playlist
        path = reading.path
        stamp = reading.stamp
        fault = refusal ?? reading.fault
        isPlaylist = playlist != nil || fault != nil
        sizeWithoutKeys = playlist?.sizeWithoutKeys ?? 0
        problems =
            (refusal.map { [HlsProblem(path: reading.path, line: $0.line, text: $0.text)] } ?? []) + reading.problems
        files = refusal == nil ? Array(Set(reading.segments.map(\.1.identity))) : []
        claimCount = refusal == nil ? reading.segments.reduce(0) { count, _ in count + 1 } : 0
        ranged = Set(reading.segments.compactMap { $0.bytes == nil ? nil : $1.identity })
        names = reading.names
    }

    var error: ViewError? { fault.map { .malformed("\(HlsProblem.location(path, line: $0.line)): \($0.text)") } }
}
