internal import LinuxSystem
internal import SystemPackage

/// The contents of all playlists of a tree, combined. Guarded by the lock of `HlsIndex`.
struct HlsState {
    /// Maximum number of known directories. Others are read again each time an unnamed file in them is asked for.
    private static let maximumDirectories = 1 << 18
    /// Maximum number of claims about one file, because they are compared with each other. A film of a day in ranges of
    /// two seconds has 43,200.
    private static let maximumClaimsOfFile = 1 << 16
    private static let maximumForgottenNames = 1 << 16

    struct File {
        var claims: [HlsClaim]
        /// The path and the size in bytes at the reading of a playlist.
        var path: [UInt8]
        var size: UInt64
        var decided: Decided?

        struct Decided {
            var size: UInt64
            var decision: HlsDecision
            /// True if different URIs lead to the file.
            var isAmbiguous: Bool
            /// True if every reference to the file is shown as plaintext.
            var isShown = false
        }

        mutating func add(_ claim: HlsClaim, _ target: HlsReading.Target) {
            claims.append(claim)
            decided = nil
            (path, size) = (target.path, target.size)
        }
    }

    /// An unnamed file that looks encrypted.
    struct Stray {
        var identity: FileIdentity
        var path: [UInt8]
        var text = "no playlist names it, and it looks encrypted"
        /// True if it counts even if a playlist names it.
        var isNamed = false
    }

    /// By path.
    private(set) var playlists: [[UInt8]: HlsPlaylistRecord] = [:]
    private(set) var playlistFiles: [FileIdentity: HlsPlaylistRecord] = [:]
    private(set) var files: [FileIdentity: File] = [:]
    /// Hashes of the segments' paths named by a playlist, by its path.
    private var names: [[UInt8]: Set<Int>] = [:]
    /// Hashes of paths for which a reading of their playlists found nothing, until a playlist with the path is read.
    private var forgottenNames: Set<Int> = []
    private let maximumClaims: Int
    private var claimCount = 0
    /// Directories whose playlists have been read, by path.
    private(set) var directories: [[UInt8]: FileStamp] = [:]
    /// The result of the last search, and files that have become strays since.
    var strays: [Stray] = []
    /// Playlists and directories that cannot be read.
    private(set) var unreadable: [[UInt8]: String] = [:]
    /// A file that begins like a playlist, and the reason why it is none.
    struct Misfit {
        var identity: FileIdentity
        var reason: String
    }

    /// By path.
    private var allMisfits: [[UInt8]: Misfit] = [:]
    /// A hash of each playlist's reading, by path.
    private var sums: [[UInt8]: Int] = [:]
    /// The time of each playlist's last reading, by path.
    private(set) var times: [[UInt8]: ContinuousClock.Instant] = [:]
    /// Bytes of the texts shown last by the mount, by the path of the playlist. Another playlist can change a text. The
    /// next open then makes it again, and notifies the kernel of its size.
    private var sizes: [[UInt8]: UInt64] = [:]

    init(maximumClaims: Int) { self.maximumClaims = maximumClaims }

    // MARK: Changes

    /// The number of claims that a playlist may have, and its fault if it has more.
    func room(for path: [UInt8]) -> (claims: Int, lack: PlaylistError) {
        let text = "the playlists name more than \(maximumClaims) segments: mount a part of the directory at a time"
        let known = playlists[path]?.claimCount ?? 0
        return (maximumClaims - claimCount + known, PlaylistError(line: 0, text: text))
    }

    /// Replaces the contents of one playlist. Returns its record, with a fault if it has too many segments.
    mutating func replace(with reading: HlsReading) -> HlsPlaylistRecord {
        if !forgottenNames.isEmpty { forgottenNames.subtract(reading.names) }
        var record = HlsPlaylistRecord(reading)
        let sum = reading.sum(of: record)
        // At most opens the reading is the same, so its claims need not be compared with all others again.
        if let known = playlists[reading.path], sums[reading.path] == sum, known.fault == reading.fault {
            times[reading.path] = .now
            return known
        }
        remove(reading.path)
        let room = room(for: reading.path)
        if record.claimCount > room.claims {
            // Another playlist was read meanwhile, and has taken the room.
            record = HlsPlaylistRecord(reading, refusal: room.lack)
        } else {
            // A nearly full file takes no more playlists. Otherwise thousands of them would be added and removed again.
            let limit = Self.maximumClaimsOfFile - min(record.claimCount, 1024)
            let isFull = record.files.contains { files[$0]?.claims.count ?? 0 > limit }
            var isTooMany = false
            if !isFull {
                reading.forEachClaim(of: record) { target, claim in
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
        // Names take memory too, so a playlist without room has none.
        names[record.path] = record.fault == reading.fault ? Set(reading.names) : nil
        claimCount += record.claimCount
        sums[record.path] = sum
        times[record.path] = .now
        return record
    }

    /// Replaces the files of a directory that begin like playlists.
    mutating func replaceMisfits(in directory: [UInt8], with found: [[UInt8]: Misfit]) {
        for path in allMisfits.keys where HlsURI.directory(of: path) == directory { allMisfits[path] = nil }
        for (path, misfit) in found where allMisfits.count < HlsIndex.maximumProblems { allMisfits[path] = misfit }
    }

    /// The misfits, except files to which a link with a playlist's name leads.
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
        (sizes[path], sums[path], times[path]) = (nil, nil, nil)
        guard let record = playlists.removeValue(forKey: path) else { return }
        removeClaims(of: record)
        names[path] = nil
        let identity = record.stamp.identity
        if playlistFiles[identity] === record {
            // The file can have another name.
            playlistFiles[identity] = playlists.values.first { $0.isPlaylist && $0.stamp.identity == identity }
        }
        claimCount -= record.claimCount
    }

    /// Removes a playlist's claims. If a file had a key and now has no claims, it becomes a stray, such as a segment
    /// that has left a live playlist.
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

    /// Stops further readings of playlists for this path, after a reading has found nothing, until a playlist with the
    /// path is read.
    mutating func forget(name path: [UInt8], of identity: FileIdentity) {
        guard playlistFiles[identity] == nil, files[identity] == nil else { return }
        // Dropping them costs only time.
        if forgottenNames.count >= Self.maximumForgottenNames { forgottenNames = [] }
        forgottenNames.insert(path.hashValue)
    }

    // MARK: Queries

    /// The certainty about the content of a path.
    enum Knowledge {
        case certain
        /// Playlists name the file by other paths. It has several names, or has got the inode number of another file.
        case otherPaths([[UInt8]: Set<[UInt8]>])
        /// The file is unknown, but these playlists name its path.
        case named(playlists: [[UInt8]])
    }

    func knowledge(of identity: FileIdentity, at path: [UInt8]) -> Knowledge {
        if let record = playlistFiles[identity] {
            return record.path == path ? .certain : .otherPaths([record.path: [record.path]])
        }
        if let file = files[identity] {
            var others: [[UInt8]: Set<[UInt8]>] = [:]
            for claim in file.claims where claim.path != path {
                others[claim.path, default: []].insert(claim.playlist.path)
            }
            return others.isEmpty ? .certain : .otherPaths(others)
        }
        let name = path.hashValue
        if forgottenNames.contains(name) { return .certain }
        let playlists = names.filter { $0.value.contains(name) }.map(\.key)
        return playlists.isEmpty ? .certain : .named(playlists: playlists)
    }

    /// Returns the paths of the playlists with claims about a file.
    func playlists(naming identity: FileIdentity) -> Set<[UInt8]> {
        // The claims of a playlist follow each other.
        var paths: Set<[UInt8]> = []
        var last: HlsPlaylistRecord?
        for claim in files[identity]?.claims ?? [] where claim.playlist !== last {
            last = claim.playlist
            paths.insert(claim.playlist.path)
        }
        return paths
    }

    /// Decides about a file, from all claims.
    ///
    /// - Parameter size: bytes of the file.
    mutating func decided(on identity: FileIdentity, size: UInt64) -> File.Decided {
        if let record = playlistFiles[identity] {
            let decision = record.error.map { HlsDecision.refused($0) } ?? .playlist(size: sizes[record.path])
            return File.Decided(size: size, decision: decision, isAmbiguous: false)
        }
        guard let file = files[identity] else {
            return File.Decided(size: size, decision: .asItIs, isAmbiguous: false)
        }
        if let decided = file.decided, decided.size == size { return decided }
        let isAmbiguous = HlsClaim.areAmbiguous(file.claims)
        let decision = HlsClaimMerge(file.claims, size: size, isAmbiguous: isAmbiguous).decision
        let isShown = decision.isDecrypted && !isAmbiguous && !file.claims.contains(where: \.isMention)
        let decided = File.Decided(size: size, decision: decision, isAmbiguous: isAmbiguous, isShown: isShown)
        // Most files have one claim. Their decision is soon found again, and would take as much memory as the claim.
        if file.claims.count > 1 { files[identity]?.decided = decided }
        return decided
    }

    /// Returns the decisions about the files of a playlist's references. Nil where a URI may mean another file.
    mutating func decisions(for reading: HlsReading) -> [HlsDecision?] {
        // A master playlist announces the keys of its playlists as long as one of these has key lines.
        let announcesKeys = reading.playlist.map { !$0.sessionKeyLines.isEmpty } ?? false
        let left = announcesKeys ? Set(reading.targets.compactMap { $0?.identity }).filter { isLeft($0) } : []
        return reading.targets.map { target in
            guard let target else { return nil }
            if left.contains(target.identity) { return .left("its playlist has key lines") }
            let size = files[target.identity]?.size ?? target.size
            let decided = decided(on: target.identity, size: size)
            return target.isExact || !decided.isAmbiguous ? decided.decision : nil
        }
    }

    // MARK: What is left

    /// A file with a length that rules out its ciphertext. It may be plaintext already.
    struct Misfitting {
        var path: [UInt8]
        var identity: FileIdentity
        /// The line of a playlist.
        var line: Int
        var reason: String
        /// False if only a part of the file is encrypted.
        var mayBePlain: Bool
    }

    /// Returns the files of a playlist with such a length.
    mutating func misfitting(of record: HlsPlaylistRecord) -> [Misfitting] {
        var found: [Misfitting] = []
        for identity in record.files {
            guard let file = files[identity] else { continue }
            guard case .chains(let segment) = decided(on: identity, size: file.size).decision else { continue }
            let end = segment.parts.last?.bytes?.upperBound ?? file.size
            let isCut = segment.isRanged ? end > file.size : file.size == 0 || file.size % 16 != 0
            guard isCut, let line = file.claims.lazy.filter({ $0.playlist === record && $0.hasKey }).map(\.line).min()
            else { continue }
            let reason = segment.isRanged ? "it ends before byte \(end)" : "its \(file.size) bytes are no AES-CBC"
            found.append(
                Misfitting(
                    path: file.path, identity: identity, line: line, reason: reason, mayBePlain: !segment.isRanged))
        }
        return found
    }

    /// True if some content of a playlist is not shown as plaintext.
    private mutating func isLeft(_ identity: FileIdentity) -> Bool {
        guard let record = playlistFiles[identity] else { return false }
        return record.fault != nil || left(of: record).count > 0
    }

    /// Returns the encrypted references of a playlist that the mount does not show as plaintext.
    mutating func left(of record: HlsPlaylistRecord) -> HlsLeft {
        var left = record.left
        forEachLeft(of: record) { claim, _, _ in left.add(claim.line) }
        return left
    }

    /// Calls `body` for each claim of a playlist whose bytes are not shown as plaintext, though a key is in force.
    private mutating func forEachLeft(of record: HlsPlaylistRecord, _ body: (HlsClaim, [UInt8], HlsDecision) -> Void) {
        for identity in record.files {
            guard let file = files[identity] else { continue }
            let decided = decided(on: identity, size: file.size)
            if decided.isShown { continue }
            for claim in file.claims where claim.playlist === record && claim.hasKey {
                if decided.isAmbiguous && !claim.isExact {
                    body(claim, file.path, .left("other playlists lead to \(shown(file.path)) by other URIs"))
                } else if !claim.isShown(by: decided.decision, size: file.size) {
                    body(claim, file.path, decided.decision)
                }
            }
        }
    }

    /// Returns the files with encrypted byte ranges, and the bytes of each that playlists leave out.
    mutating func gaps() -> [(identity: FileIdentity, path: [UInt8], gaps: [Range<UInt64>])] {
        var found: [(identity: FileIdentity, path: [UInt8], gaps: [Range<UInt64>])] = []
        for (identity, file) in files where file.claims.contains(where: { $0.bytes != nil }) {
            guard file.claims.contains(where: { !$0.playlist.endings.isEmpty }) else { continue }
            switch decided(on: identity, size: file.size).decision {
            case .clear: break
            case .chains(let segment) where segment.isRanged: break
            case .chains, .playlist, .samples, .refused, .asItIs, .left: continue
            }
            let gaps = HlsClaimMerge(file.claims, size: file.size, isAmbiguous: false).gaps
            if !gaps.isEmpty { found.append((identity, file.path, gaps)) }
        }
        return found
    }

    /// Returns the problems of files named by several playlists, or described by boxes: up to `limit` of each playlist.
    mutating func problems(of record: HlsPlaylistRecord, limit: Int) -> [HlsProblem] {
        if record.fault != nil { return [] }
        var found: [HlsProblem] = []
        forEachLeft(of: record) { claim, path, decision in
            guard found.count < limit else { return }
            let text: String
            switch decision {
            case .refused(let error):
                // A claim with a failure is already among the playlist's own problems.
                guard claim.failure == nil else { return }
                text = error.reason
            case .left(let reason): text = reason + HlsLeft.end
            case .asItIs, .clear, .playlist: text = "\(shown(path)): no segment, and not decrypted\(HlsLeft.end)"
            case .chains, .samples:
                text = "\(shown(path)): bytes that are no segment, and not decrypted\(HlsLeft.end)"
            }
            found.append(HlsProblem(path: record.path, line: claim.line, text: text))
        }
        return found
    }
}

extension HlsClaim {
    /// True if the mount shows the bytes as plaintext.
    fileprivate func isShown(by decision: HlsDecision, size: UInt64) -> Bool {
        guard case .mention(let form) = use else { return decision.isDecrypted }
        return decision.shows(bytes, form, size: size)
    }
}
