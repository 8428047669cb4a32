internal import LinuxSystem
internal import SystemPackage

/// The contents of all playlists of a tree, combined. Guarded by the lock of `HlsIndex`.
struct HlsState {
    /// Directories beyond this number are read again each time a file in them is asked for that no playlist names.
    private static let maximumDirectories = 1 << 18
    /// Maximum number of claims about one file, which are compared with each other: a film of a day in ranges of two
    /// seconds has 43,200.
    private static let maximumClaimsOfFile = 1 << 16

    struct File {
        var claims: [HlsClaim]
        /// The path and the size in bytes at the time a playlist was read.
        var path: [UInt8]
        var size: UInt64
        var decided: (size: UInt64, decision: HlsDecision)?

        mutating func add(_ claim: HlsClaim, _ target: HlsReading.Target) {
            claims.append(claim)
            decided = nil
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
    /// Hashes of segments' paths that playlists name.
    private var names: Set<Int> = []
    private let maximumClaims: Int
    private var claimCount = 0
    /// Directories whose playlists have been read, by path.
    private(set) var directories: [[UInt8]: FileStamp] = [:]
    /// The result of the last search.
    var strays: [Stray] = []
    /// Playlists and directories that cannot be read.
    private(set) var unreadable: [[UInt8]: String] = [:]
    /// A file that begins like a playlist, and why it is none.
    struct Misfit {
        var identity: FileIdentity
        var reason: String
    }

    /// By path.
    private var allMisfits: [[UInt8]: Misfit] = [:]
    /// A hash of each playlist's claims, by path.
    private var sums: [[UInt8]: Int] = [:]
    /// Bytes of the texts that the mount showed last, by the path of the playlist. Another playlist can change a text: the
    /// next open makes it again, and tells the kernel its size.
    private var sizes: [[UInt8]: UInt64] = [:]

    init(maximumClaims: Int) { self.maximumClaims = maximumClaims }

    // MARK: Changes

    /// False if a playlist has more segments than there is room for.
    func hasRoom(for reading: HlsReading) -> Bool {
        reading.claimCount <= maximumClaims - claimCount + (playlists[reading.path]?.claimCount ?? 0)
    }

    /// Replaces the contents of one playlist. Returns its record, with a fault if it has too many segments.
    mutating func replace(with reading: HlsReading) -> HlsPlaylistRecord {
        let known = (sum: sums[reading.path], size: sizes[reading.path])
        remove(reading.path)
        var hasher = Hasher()
        hasher.combine(reading.stamp)
        var record = HlsPlaylistRecord(reading)
        if record.claimCount > maximumClaims - claimCount {
            let text = "the playlists name more than \(maximumClaims) segments: mount a part of the directory at a time"
            record = HlsPlaylistRecord(reading, refusal: PlaylistError(line: 0, text: text))
        } else {
            // A file that is nearly full takes no more playlists, so that thousands of them are not added and removed again.
            let limit = Self.maximumClaimsOfFile - min(record.claimCount, 1024)
            let isFull = record.files.contains { files[$0]?.claims.count ?? 0 > limit }
            var isTooMany = false
            if !isFull {
                reading.forEachClaim(of: record) { target, claim in
                    hasher.combine(target)
                    claim.hash(into: &hasher)
                    if files[target.identity]?.add(claim, target) == nil {
                        files[target.identity] = File(claims: [claim], path: target.path, size: target.size)
                    } else if files[target.identity]?.claims.count ?? 0 > Self.maximumClaimsOfFile {
                        isTooMany = true
                    }
                }
            }
            if isTooMany { removeClaims(of: record) }
            if isFull || isTooMany {
                let text = "the playlists name more than \(Self.maximumClaimsOfFile) parts of one file"
                record = HlsPlaylistRecord(reading, refusal: PlaylistError(line: 0, text: text))
            }
        }
        playlists[record.path] = record
        playlistFiles[record.stamp.identity] = record.isPlaylist ? record : nil
        names.formUnion(record.names)
        claimCount += record.claimCount
        let sum = hasher.finalize()
        sums[record.path] = sum
        // The same reading again, as at each open.
        if known.sum == sum { sizes[record.path] = known.size }
        return record
    }

    /// Replaces the files of a directory that begin like playlists.
    mutating func replaceMisfits(in directory: [UInt8], with found: [[UInt8]: Misfit]) {
        for path in allMisfits.keys where HlsURI.directory(of: path) == directory { allMisfits[path] = nil }
        for (path, misfit) in found where allMisfits.count < HlsIndex.maximumProblems { allMisfits[path] = misfit }
    }

    /// Without those that a link with a playlist's name leads to.
    var misfits: [[UInt8]: Misfit] { allMisfits.filter { playlistFiles[$0.value.identity] == nil } }

    /// Keeps the size of a playlist's text.
    mutating func setSize(_ size: UInt64, of path: [UInt8]) {
        if playlists[path] != nil { sizes[path] = size }
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
        (sizes[path], sums[path]) = (nil, nil)
        guard let record = playlists.removeValue(forKey: path) else { return }
        removeClaims(of: record)
        names.subtract(record.names.filter { name in !playlists.values.contains { $0.names.contains(name) } })
        let identity = record.stamp.identity
        if playlistFiles[identity] === record {
            // The file can have another name.
            playlistFiles[identity] = playlists.values.first { $0.isPlaylist && $0.stamp.identity == identity }
        }
        claimCount -= record.claimCount
    }

    /// Files that no playlist names any more, as segments that have left a live playlist, become strays if they had a key.
    private mutating func removeClaims(of record: HlsPlaylistRecord) {
        for identity in record.files {
            guard var file = files[identity] else { continue }
            let hadKey = file.claims.contains { $0.hasKey && !$0.isMention }
            file.claims.removeAll { $0.playlist === record }
            file.decided = nil
            files[identity] = file.claims.isEmpty ? nil : file
            guard file.claims.isEmpty, hadKey, strays.count < HlsIndex.maximumProblems,
                !strays.contains(where: { $0.identity == identity })
            else { continue }
            strays.append(Stray(identity: identity, path: file.path))
        }
    }

    /// Stops further readings of playlists for this path, until a playlist that names it is read. For a path whose
    /// reading found nothing.
    mutating func forget(name path: [UInt8], of identity: FileIdentity) {
        guard playlistFiles[identity] == nil, files[identity] == nil else { return }
        names.remove(HlsURI.normalized(path).hashValue)
    }

    // MARK: Queries

    /// How certain the content of a path is.
    enum Knowledge {
        case certain
        /// Playlists name the file by other paths. It has several names, or has got the inode number of another file.
        case otherPaths([[UInt8]: Set<[UInt8]>])
        /// Nothing is known of the file, and these playlists name its path.
        case named(playlists: [[UInt8]])
    }

    func knowledge(of identity: FileIdentity, at path: [UInt8]) -> Knowledge {
        if let record = playlistFiles[identity] {
            return record.path == path ? .certain : .otherPaths([record.path: [record.path]])
        }
        if let file = files[identity] {
            var others: [[UInt8]: Set<[UInt8]>] = [:]
            for claim in file.claims where claim.path != path && HlsURI.normalized(claim.path) != path {
                others[claim.path, default: []].insert(claim.playlist.path)
            }
            return others.isEmpty ? .certain : .otherPaths(others)
        }
        let name = HlsURI.normalized(path).hashValue
        guard names.contains(name) else { return .certain }
        return .named(playlists: playlists.values.filter { $0.names.contains(name) }.map(\.path))
    }

    /// The paths of the playlists that have claims about a file.
    func playlists(naming identity: FileIdentity) -> Set<[UInt8]> {
        Set(files[identity]?.claims.map(\.playlist.path) ?? [])
    }

    /// The decision about a file, from all claims.
    ///
    /// - Parameter size: bytes of the file.
    mutating func decision(on identity: FileIdentity, size: UInt64) -> HlsDecision {
        if let record = playlistFiles[identity] {
            if let error = record.error { return .refused(error) }
            return .playlist(size: sizes[record.path])
        }
        guard let file = files[identity] else { return .asItIs }
        if let decided = file.decided, decided.size == size { return decided.decision }
        let decision = HlsClaimMerge(file.claims, size: size).decision
        // Most files have one claim: what follows from it is soon found again, and would take as much memory as the claim.
        if file.claims.count > 1 { files[identity]?.decided = (size, decision) }
        return decision
    }

    /// The decisions about the files of a playlist's references.
    mutating func decisions(for reading: HlsReading) -> [HlsDecision?] {
        reading.targets.map { target in
            target.map { decision(on: $0.identity, size: files[$0.identity]?.size ?? $0.size) }
        }
    }

    // MARK: What is left

    /// The encrypted references of a playlist that the mount does not show as plaintext.
    mutating func left(of record: HlsPlaylistRecord) -> HlsLeft {
        var left = record.left
        forEachLeft(of: record) { claim, _, _ in left.add(claim.line) }
        return left
    }

    /// Calls `body` for each claim of a playlist whose file is not shown as plaintext, though a key is in force.
    private mutating func forEachLeft(of record: HlsPlaylistRecord, _ body: (HlsClaim, [UInt8], HlsDecision) -> Void) {
        for identity in record.files {
            guard let file = files[identity], !file.isDecryptedBySingleClaim else { continue }
            let decision = decision(on: identity, size: file.size)
            if decision.isDecrypted { continue }
            for claim in file.claims where claim.playlist === record && claim.hasKey {
                body(claim, file.path, decision)
            }
        }
    }

    /// The problems of files that several playlists, or their boxes, speak of: up to `limit` of each playlist.
    mutating func problems(of record: HlsPlaylistRecord, limit: Int) -> [HlsProblem] {
        if record.fault != nil { return [] }
        var found: [HlsProblem] = []
        forEachLeft(of: record) { claim, path, decision in
            guard found.count < limit else { return }
            switch decision {
            case .refused(let error):
                // The playlist itself has a line about what it cannot decrypt.
                if claim.failure == nil {
                    found.append(HlsProblem(path: record.path, line: claim.line, text: error.reason))
                }
            case .asItIs, .clear, .playlist:
                let text = "\(shown(path)): no segment, and not decrypted\(HlsLeft.end)"
                found.append(HlsProblem(path: record.path, line: claim.line, text: text))
            case .chains, .samples: break
            }
        }
        return found
    }
}

extension HlsState.File {
    /// True for most files: one claim, which decides.
    fileprivate var isDecryptedBySingleClaim: Bool {
        guard claims.count == 1 else { return false }
        if case .encrypted = claims[0].use { return true }
        return false
    }
}
