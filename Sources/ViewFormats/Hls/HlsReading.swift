internal import Glibc
internal import LinuxSystem
internal import SystemPackage

/// The result of one reading of a playlist. Immutable, even if the file changes later.
final class HlsPlaylistRecord: Sendable {
    let path: [UInt8]
    let stamp: FileStamp
    /// Nil if the file is not a playlist.
    let kind: Playlist.Kind?
    let fault: PlaylistError?
    /// Length in bytes of the mount's text, if no byte range in it changes.
    let sizeWithoutKeys: UInt64

    init(path: [UInt8], stamp: FileStamp, playlist: Playlist?, fault: PlaylistError?) {
        self.path = path
        self.stamp = stamp
        self.fault = fault
        kind = playlist?.kind
        sizeWithoutKeys = playlist?.sizeWithoutKeys ?? 0
    }

    /// False if the file is shown as it is.
    var isPlaylist: Bool { kind != nil || fault != nil }

    var error: ViewError? {
        fault.map { .malformed("\(HlsProblem.location(path, line: $0.line)): \($0.text)") }
    }
}

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

    let record: HlsPlaylistRecord
    /// Nil if the file is not a playlist, or too large.
    let playlist: Playlist?
    /// One for each reference. Nil if it is not a file of the tree.
    private(set) var targets: [Target?] = []
    /// Hashes of the paths that segments can have. A file that appears later under such a path is a segment.
    private(set) var names: Set<Int> = []
    private(set) var problems: [HlsProblem] = []
    private let tree: HlsTree

    /// - Throws: if the path is not a regular file, or cannot be read.
    init(_ path: [UInt8], in tree: HlsTree) throws(StoreError) {
        let file = try tree.file(path)
        // Before the text, so that the next check notices a change in between.
        let stamp = FileStamp(try file.status())
        guard let text = try file.readToEnd(limit: Playlist.maximumSize) else {
            let fault = PlaylistError(line: 0, text: Playlist.tooLarge)
            self.init(HlsPlaylistRecord(path: path, stamp: stamp, playlist: nil, fault: fault), nil, tree)
            return
        }
        do throws(PlaylistError) {
            let playlist = try Playlist.parse(text)
            let record = HlsPlaylistRecord(path: path, stamp: stamp, playlist: playlist, fault: playlist.fault)
            self.init(record, playlist, tree)
            if let complaint = playlist.complaint { report(complaint.line, complaint.text) }
            resolve(playlist)
        } catch {
            self.init(HlsPlaylistRecord(path: path, stamp: stamp, playlist: nil, fault: nil), nil, tree)
            // An .m3u can be a list of anything.
            if path.suffix(5).elementsEqual(".m3u8".utf8) { report(error.line, error.text) }
        }
    }

    private init(_ record: HlsPlaylistRecord, _ playlist: Playlist?, _ tree: HlsTree) {
        self.record = record
        self.playlist = playlist
        self.tree = tree
        if let fault = record.fault { report(fault.line, fault.text) }
    }

    private mutating func report(_ line: Int, _ text: String) {
        guard problems.count <= Self.maximumProblems else { return }
        let isLast = problems.count == Self.maximumProblems
        problems.append(HlsProblem(path: record.path, line: line, text: isLast ? "and more like these" : text))
    }

    // MARK: URIs

    private mutating func resolve(_ playlist: Playlist) {
        let directory = HlsURI.directory(of: record.path)
        targets.reserveCapacity(playlist.references.count)
        for (number, reference) in playlist.references.enumerated() {
            // A thousand byte ranges of one file are looked up once.
            if number > 0,
                playlist.text[reference.uri].elementsEqual(playlist.text[playlist.references[number - 1].uri])
            {
                targets.append(targets[number - 1])
                continue
            }
            targets.append(resolve(playlist.uri(of: reference), reference, directory))
        }
    }

    private mutating func resolve(_ uri: [UInt8], _ reference: Playlist.Reference, _ directory: [UInt8]) -> Target? {
        let paths = HlsURI.paths(uri, directory: directory)
        guard !paths.isEmpty else {
            report(reference.line, "\(shown(uri)) is not relative to the playlist, and stays as it is")
            return nil
        }
        if reference.role != .playlist {
            for path in paths { names.insert(HlsURI.normalized(path).hashValue) }
        }
        var reason = ""
        for path in paths {
            do throws(StoreError) {
                let status = try tree.object(path).status()
                guard status.st_mode & S_IFMT == S_IFREG else { throw .damaged("it is not a regular file") }
                return Target(identity: FileIdentity(status), path: path, size: UInt64(max(status.st_size, 0)))
            } catch {
                // Report the first path: it is the one that RFC 3986 gives.
                if reason.isEmpty { reason = Self.text(error) }
            }
        }
        report(reference.line, "\(shown(uri)): \(reason)")
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

    /// Maximum number of claims that `forEachClaim` passes on.
    var maximumClaimCount: Int { targets.count { $0 != nil } }

    /// Passes on each claim about a file, one by one, because there may be half a million. Only media playlists have
    /// claims.
    func forEachClaim(_ body: (Target, HlsClaim) -> Void) {
        guard let playlist else { return }
        let directory = HlsURI.directory(of: record.path)
        let keys = playlist.keys.map { KeyName.uri($0, directory: directory) }
        for (reference, target) in zip(playlist.references, targets) {
            guard let target, reference.role != .playlist else { continue }
            var claim = HlsClaim(bytes: reference.bytes, use: .plain, playlist: record, line: reference.line)
            if playlist.fault != nil {
                claim.use = .failed
            } else if let encryption = reference.encryption {
                let used = HlsSegment.Encryption(key: keys[encryption.key], vector: encryption.vector)
                claim.use = reference.role == .frame ? .frames(used) : .encrypted(used)
            } else if reference.role == .frame {
                continue
            }
            body(target, claim)
        }
    }
}
