internal import LinuxSystem
internal import SystemPackage

/// The contents of all playlists of a tree, combined. Guarded by the lock of `HlsIndex`.
struct HlsState {
    /// Directories beyond this number are read again each time a file in them is asked for that no playlist names.
    private static let maximumDirectories = 1 << 18

    struct File {
        var claims: [HlsClaim]
        /// The path and the size in bytes at the time a playlist was read.
        var path: [UInt8]
        var size: UInt64
        var merged: (size: UInt64, content: HlsContent)?

        mutating func add(_ claim: HlsClaim, _ target: HlsReading.Target) {
            claims.append(claim)
            merged = nil
            (path, size) = (target.path, target.size)
        }
    }

    /// A file that looks encrypted, and that no playlist names.
    struct Stray {
        var identity: FileIdentity
        var path: [UInt8]
    }

    /// By path.
    private(set) var playlists: [[UInt8]: HlsPlaylistRecord] = [:]
    private(set) var playlistFiles: [FileIdentity: HlsPlaylistRecord] = [:]
    private(set) var files: [FileIdentity: File] = [:]
    /// Hashes of segments' paths, each with the path of a playlist that names the segment.
    private var names: [Int: [UInt8]] = [:]
    private let maximumClaims: Int
    private var claimCount = 0
    /// Directories whose playlists have been read, by path.
    private(set) var directories: [[UInt8]: FileStamp] = [:]
    /// The result of the last search.
    var strays: [Stray] = []
    /// Playlists and directories that cannot be read.
    private(set) var unreadable: [[UInt8]: String] = [:]

    init(maximumClaims: Int) { self.maximumClaims = maximumClaims }

    // MARK: Changes

    /// Replaces the contents of one playlist. Returns its record, with a fault if it has too many segments.
    mutating func replace(with reading: HlsReading) -> HlsPlaylistRecord {
        remove(reading.path)
        var record = HlsPlaylistRecord(reading)
        if record.claimCount > maximumClaims - claimCount {
            let text = "the playlists name more than \(maximumClaims) segments: mount a part of the directory at a time"
            record = HlsPlaylistRecord(reading, refusal: PlaylistError(line: 0, text: text))
        } else {
            reading.forEachClaim(of: record) { target, claim in
                if files[target.identity]?.add(claim, target) == nil {
                    files[target.identity] = File(claims: [claim], path: target.path, size: target.size)
                }
            }
        }
        playlists[record.path] = record
        playlistFiles[record.stamp.identity] = record.isPlaylist ? record : nil
        for name in record.names { names[name] = record.path }
        claimCount += record.claimCount
        return record
    }

    /// Adds the reason why a playlist or directory cannot be read, unless it does not exist.
    mutating func addUnreadable(_ path: [UInt8], _ error: StoreError) {
        guard error != .system(.noSuchFileOrDirectory), unreadable.count < HlsIndex.maximumProblems else { return }
        unreadable[path] = HlsReading.text(error)
    }

    mutating func addDirectory(_ path: [UInt8], _ stamp: FileStamp) {
        unreadable[path] = nil
        guard directories[path] != nil || directories.count < Self.maximumDirectories else { return }
        directories[path] = stamp
    }

    /// Removes a playlist that no longer exists.
    mutating func remove(_ path: [UInt8]) {
        unreadable[path] = nil
        guard let record = playlists.removeValue(forKey: path) else { return }
        for identity in record.files {
            guard var file = files[identity] else { continue }
            file.claims.removeAll { $0.playlist === record }
            file.merged = nil
            files[identity] = file.claims.isEmpty ? nil : file
        }
        for name in record.names where names[name] == path { names[name] = nil }
        let identity = record.stamp.identity
        if playlistFiles[identity] === record {
            // The file can have another name.
            playlistFiles[identity] = playlists.values.first { $0.isPlaylist && $0.stamp.identity == identity }
        }
        claimCount -= record.claimCount
    }

    /// Stops further readings of playlists for this path, until a playlist that names it is read. For a path whose
    /// reading found nothing.
    mutating func forget(name path: [UInt8], of identity: FileIdentity) {
        guard playlistFiles[identity] == nil, files[identity] == nil else { return }
        names[HlsURI.normalized(path).hashValue] = nil
    }

    // MARK: Queries

    /// How certain the content of a path is.
    enum Knowledge {
        case certain
        /// The file had another path. It has two names, or another file has got its inode number.
        case otherPath([UInt8], playlists: Set<[UInt8]>)
        /// Nothing is known of the file, and this playlist names its path.
        case named(playlist: [UInt8])
    }

    func knowledge(of identity: FileIdentity, at path: [UInt8]) -> Knowledge {
        if let record = playlistFiles[identity] {
            return record.path == path ? .certain : .otherPath(record.path, playlists: [record.path])
        }
        if let file = files[identity] {
            if file.path == path || HlsURI.normalized(file.path) == path { return .certain }
            return .otherPath(file.path, playlists: playlists(naming: identity))
        }
        return names[HlsURI.normalized(path).hashValue].map { .named(playlist: $0) } ?? .certain
    }

    /// The paths of the playlists that have claims about a file.
    func playlists(naming identity: FileIdentity) -> Set<[UInt8]> {
        Set(files[identity]?.claims.map(\.playlist.path) ?? [])
    }

    mutating func content(of identity: FileIdentity, size: UInt64) -> HlsContent {
        if let record = playlistFiles[identity] {
            if let error = record.error { return .failed(error) }
            let needsKeys =
                record.ranged.contains { segment(of: $0)?.isRanged == true }
                || record.tails.contains { segment(of: $0) != nil }
            return .playlist(size: needsKeys ? nil : record.size)
        }
        guard let file = files[identity] else { return .plain }
        if let merged = file.merged, merged.size == size { return merged.content }
        let content: HlsContent
        do throws(ViewError) {
            let merge = HlsClaimMerge(file.claims, size: size)
            if let samples = try merge.samples() {
                content = .samples(samples)
            } else {
                content = try merge.segment().map { .segment($0) } ?? .plain
            }
        } catch {
            content = .failed(error)
        }
        files[identity]?.merged = (size, content)
        return content
    }

    /// The encryption of a file that a playlist has byte ranges of.
    mutating func segment(of identity: FileIdentity) -> HlsSegment? {
        guard playlistFiles[identity] == nil, let size = files[identity]?.size,
            case .segment(let segment) = content(of: identity, size: size)
        else { return nil }
        return segment
    }
}
