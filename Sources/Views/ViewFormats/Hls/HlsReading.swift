internal import Glibc
internal import LinuxSystem
internal import SystemPackage

/// One reading of a playlist, with the files meant by its URIs.
struct HlsReading {
    /// Maximum number of problems of one playlist.
    static let maximumProblems = 16
    /// Number of look-ups between checks for an interruption: some milliseconds.
    private static let lookupsBetweenChecks = 256

    /// A file of the tree to which the playlist refers.
    struct Target: Hashable {
        var identity: FileIdentity
        var path: [UInt8]
        var size: UInt64
        /// The file's name beside the playlist, if it is not where the URI says.
        var name: [UInt8]?
        /// False if the URI as written leads to no file, so that other URIs could mean this file as well.
        var isExact: Bool
    }

    let path: [UInt8]
    let stamp: FileStamp
    /// Nil if the file is not a playlist, or too large.
    private(set) var playlist: Playlist?
    /// The reason why the playlist cannot be shown decrypted.
    private(set) var fault: PlaylistError?
    /// The reason why a file named like a playlist, or beginning like one, is none. It stays as it is.
    private(set) var misreading: PlaylistError?
    /// One for each reference. Nil if it is not a file of the tree.
    private(set) var targets: [Target?] = []
    /// Files to which references lead that `leaveAmbiguous` leaves as they are.
    private var contested: Set<FileIdentity> = []
    /// The reason for a missing or uncertain target, for each reference.
    private var reasons: [String?] = []
    private var missingCount = 0
    /// The meanings of the playlist's keys.
    private var meanings: [KeyMeanings.Meaning] = []
    /// The samples of files of a `SAMPLE-AES` playlist, by the position of the reference.
    private var samples: [Int: HlsSamples] = [:]
    /// The keys named by the boxes of its files.
    private(set) var contentKeys: Set<KeyName> = []
    /// Hashes of the possible paths of segments. A file that appears later under such a path is a segment.
    private(set) var names: [Int] = []
    private(set) var problems: [HlsProblem] = []
    /// The encrypted references left as they are, because there is no file to decrypt, or because of their keys.
    private(set) var left = HlsLeft()

    /// - Parameter index: has the source and the keys.
    /// - Throws: if the path is not a regular file, or cannot be read.
    init(_ path: [UInt8], in index: HlsIndex) throws(StoreError) {
        let file = try index.root.regularFile(beneath: path)
        self.path = path
        // Stamp the file before its text is read, so that the next check notices a change in between.
        stamp = FileStamp(try file.status())
        if let text = try file.readToEnd(limit: Playlist.maximumSize) {
            // Stop where the room ends, because all playlists of a hostile source would take minutes.
            let room = index.room(for: path, size: text.count)
            do throws(PlaylistError) { playlist = try Playlist.parse(text, room: room.claims) } catch {
                misreading = Self.misreading(of: text, path, error)
            }
            fault = playlist?.fault
            if claimCount > room.claims { (playlist, fault) = (nil, room.lack) }
        } else {
            fault = PlaylistError(line: 0, text: Playlist.tooLarge)
        }
        if let defect = misreading ?? fault ?? playlist?.complaint { report(defect) }
        guard let playlist else { return }
        try resolve(playlist, in: index)
        // Its files are refused, whatever their keys are.
        if fault != nil { return }
        let directory = HlsURI.directory(of: path)
        meanings = index.meanings.meanings(
            of: playlist.keys.indices.map {
                .uri(playlist.keys[$0], directory: directory, cipher: playlist.cipher(of: $0))
            })
        if playlist.usesSamples { try describeSamples(playlist, directory, in: index) }
        reportLeft(playlist)
    }

    /// Returns the error if the file begins like a playlist, because it may be the playlist of ciphertext. An `.m3u`
    /// can be a list of anything, but an `.m3u8` is always meant as a playlist.
    private static func misreading(of text: [UInt8], _ path: [UInt8], _ error: PlaylistError) -> PlaylistError? {
        if let reason = PlaylistBeginning.unreadable(text) ?? PlaylistBeginning.compressed(text) {
            return PlaylistError(line: 0, text: reason)
        }
        let isNamed = HlsIndex.playlistEnding(of: path)?.elementsEqual(".m3u8".utf8) == true
        return isNamed || PlaylistBeginning.isPlaylist(text) ? error : nil
    }

    private mutating func report(_ defect: PlaylistError) {
        guard problems.count <= Self.maximumProblems else { return }
        let isLast = problems.count == Self.maximumProblems
        problems.append(HlsProblem(path: path, line: defect.line, text: isLast ? "and more like these" : defect.text))
    }

    // MARK: URIs

    /// - Throws: `.locked` if a lock begins, or another error if the mount ends.
    private mutating func resolve(_ playlist: Playlist, in index: HlsIndex) throws(StoreError) {
        let directory = HlsURI.directory(of: path)
        targets.reserveCapacity(playlist.references.count)
        reasons.reserveCapacity(playlist.references.count)
        var last: Playlist.Reference?
        var listings = HlsListings(index.root)
        for reference in playlist.references {
            let uri = playlist.uri(of: reference)
            if let last, last.role == reference.role, last.isLookedUp == reference.isLookedUp,
                last.isGuess == reference.isGuess, playlist.uri(of: last) == uri
            {
                // Look up a file only once for a thousand byte ranges of it.
                targets.append(targets[targets.count - 1])
                reasons.append(reasons[reasons.count - 1])
            } else {
                var reason: String?
                if targets.count % Self.lookupsBetweenChecks == 0 { try index.work.interruption.checkStore() }
                targets.append(target(of: Array(uri), reference, directory, playlist, &listings, &reason))
                reasons.append(reason)
            }
            last = reference
        }
        leaveAmbiguous(playlist)
    }

    /// Returns the file to which a reference leads.
    /// - Parameter reason: receives the reason for a missing file.
    private mutating func target(
        of uri: [UInt8], _ reference: Playlist.Reference, _ directory: [UInt8], _ playlist: Playlist,
        _ listings: inout HlsListings, _ reason: inout String?
    ) -> Target? {
        guard reference.isLookedUp else { return nil }
        // A playlist without keys is shown as it is.
        let mayBeRewritten = reference.role == .playlist || playlist.usesKeys
        let candidates = HlsURI.candidates(uri, directory: directory).filter { mayBeRewritten || $0.name == nil }
        for candidate in candidates { names.append(candidate.path.hashValue) }
        var isKnown = false
        for (number, candidate) in candidates.enumerated() {
            do throws(StoreError) {
                let status = try listings.status(of: candidate.path)
                guard status.st_mode & S_IFMT == S_IFREG else { throw .damaged("it is not a regular file") }
                let identity = FileIdentity(status)
                if reference.role == .playlist, let name = candidate.name,
                    identity == stamp.identity || !HlsIndex.isPlaylistName(name)
                {
                    continue
                }
                reason = nil
                return Target(
                    identity: identity, path: candidate.path, size: UInt64(max(status.st_size, 0)),
                    name: candidate.name, isExact: number == 0 && candidate.name == nil)
            } catch {
                // Report the first path, which is the playlist's own, unless another one exists.
                if error != .system(.noSuchFileOrDirectory), !isKnown {
                    (reason, isKnown) = (Self.text(error), true)
                }
                if reason != nil { continue }
                missingCount += 1
                // Make a text only for a reported problem.
                if missingCount > 4 * Self.maximumProblems {
                    reason = Self.text(error)
                    continue
                }
                // Leave out the query, which can be a token.
                let name = candidate.name.map {
                    "there is no file \(shown(HlsURI.withoutQuery($0[...]))) beside the playlist"
                }
                reason = name ?? Self.text(error)
            }
        }
        reason = reason ?? "not relative to the playlist"
        return nil
    }

    /// Leaves references as they are if their files are not where the URIs say, and other URIs mean the same files.
    /// Several servers can have a `1.ts`, and a downloader that drops the query saves several files under one name, of
    /// which the last is left.
    private mutating func leaveAmbiguous(_ playlist: Playlist) {
        guard targets.contains(where: { $0?.isExact == false }) else { return }
        var uris: [FileIdentity: (bare: ArraySlice<UInt8>, whole: ArraySlice<UInt8>?)] = [:]
        var ambiguous: Set<FileIdentity> = []
        for (reference, target) in zip(playlist.references, targets) where !reference.isGuess {
            guard let target else { continue }
            let uri = playlist.uri(of: reference)
            let bare = HlsURI.withoutQuery(uri)
            let known = uris[target.identity] ?? (bare, nil)
            // The parts of a file can be requested with different queries.
            let whole = reference.bytes == nil ? uri : known.whole
            if known.bare != bare || known.whole.map({ $0 != whole }) ?? false { ambiguous.insert(target.identity) }
            uris[target.identity] = (bare, whole)
        }
        for number in targets.indices {
            guard let target = targets[number], !target.isExact, ambiguous.contains(target.identity) else { continue }
            reasons[number] = "other URIs of the playlist lead to \(shown(target.name ?? target.path)) too"
            // Samples are refused, because their init segment may be shown without its encryption.
            if case .samples = playlist.references[number].encryption, playlist.references[number].role != .map {
                continue
            }
            if target.name == nil, playlist.references[number].encryption != nil { contested.insert(target.identity) }
            targets[number] = nil
        }
    }

    static func text(_ error: StoreError) -> String {
        switch error {
        case .system(Errno(rawValue: EXDEV)): "points outside the tree"
        case .system(.noSuchFileOrDirectory): "there is no such file"
        default: error.reason
        }
    }

    // MARK: Samples

    /// Reads each init segment, and the beginnings of segments without one.
    ///
    /// - Throws: as `resolve`.
    private mutating func describeSamples(
        _ playlist: Playlist, _ directory: [UInt8], in index: HlsIndex
    ) throws(StoreError) {
        var describer = HlsSampleDescriber(index, directory: directory)
        for (number, reference) in playlist.references.enumerated() {
            let key: Int?
            switch reference.encryption {
            case nil: key = nil
            case .samples(let number): key = number
            case .chain, .unusable: continue
            }
            guard [.segment, .map, .frame].contains(reference.role), let target = targets[number] else { continue }
            try index.work.interruption.checkStore()
            let map = reference.role == .map ? number : reference.map
            samples[number] = describer.samples(
                of: target, reference, uri: key.map { playlist.keys[$0] },
                map: map.map { map in
                    HlsSampleDescriber.Map(
                        number: map, reference: playlist.references[map], target: targets[map], reason: reasons[map])
                })
            if let reason = reasons[number] { samples[number]?.description = .unusable(reason) }
        }
        contentKeys = describer.keys
    }

    // MARK: Appearance

    /// Returns how the mount shows a reference. Only here can a playlist's text lose a key line.
    /// - Parameter decision: about the reference's file. Nil if the file is missing or uncertain.
    func appearance(_ number: Int, of reference: Playlist.Reference, _ decision: HlsDecision?) -> ShownReference {
        let target = decision == nil ? nil : targets[number]
        var result = ShownReference()
        // A guess may be a part of another one, and need not be a URI.
        let name = reference.isGuess ? nil : target?.name
        result.uri = name.map { HlsURI.reference(to: $0, isAttribute: playlist?.text[reference.start] == 0x23) }
        if reference.role == .playlist {
            if case .playlist = decision { result.needsKeys = false } else { result.needsKeys = true }
        } else if let target, let decision {
            if let encryption = reference.encryption {
                let isShown =
                    reference.role == .other
                    ? decision.shows(reference.ciphertext, HlsClaim.Form(encryption), size: target.size)
                    : decision.isDecrypted
                result.needsKeys = !isShown
            }
        } else {
            result.isResource = !reference.isGuess
            result.needsKeys = reference.encryption != nil && !reference.isGuess
        }
        return result
    }

    private mutating func reportLeft(_ playlist: Playlist) {
        let playlists = playlist.references.indices.filter { playlist.references[$0].role == .playlist }
        if let first = playlists.first, playlists.allSatisfy({ targets[$0] == nil }) {
            let line = playlist.references[first].line
            left.add(line)
            report(PlaylistError(line: line, text: "none of its playlists is here: what they name stays as it is"))
        }
        var unusable: Set<PlaylistError> = []
        for (number, reference) in playlist.references.enumerated() where reference.role != .playlist {
            if case .unusable(let defect) = reference.encryption, unusable.insert(defect).inserted { report(defect) }
            guard targets[number] == nil, !reference.isGuess else { continue }
            let isLeft = reference.encryption != nil
            if isLeft { left.add(reference.line) }
            guard isLeft || reference.role != .other, problems.count <= Self.maximumProblems else { continue }
            let uri = HlsURI.text(Array(playlist.uri(of: reference)))
            report(
                PlaylistError(
                    line: reference.line,
                    text: "\(uri): \(reasons[number] ?? "no file")\(isLeft ? HlsLeft.end : "")"))
        }
    }

    /// The first segment and the first init segment of a playlist without keys, and their bytes.
    var clear: [(target: Target, bytes: Range<UInt64>?)] {
        guard let playlist, !playlist.usesKeys else { return [] }
        return [Playlist.Role.map, .segment].compactMap { role in
            guard let number = playlist.references.firstIndex(where: { $0.role == role }) else { return nil }
            return targets[number].map { ($0, playlist.references[number].bytes) }
        }
    }

    /// The endings of the names of encrypted segments, such as `.ts`.
    var endings: Set<[UInt8]> {
        guard let playlist else { return [] }
        var endings: Set<[UInt8]> = []
        var last: ArraySlice<UInt8> = []
        for reference in playlist.references where reference.encryption != nil && reference.role == .segment {
            // Most names end as the one before, which need not be decoded again.
            let path = HlsURI.withoutQuery(playlist.uri(of: reference))
            let end = path[(path.lastIndex { ".%/".utf8.contains($0) } ?? path.endIndex)...]
            if end == last, end.first == UInt8(ascii: ".") { continue }
            guard let name = HlsURI.fileName(of: Array(playlist.uri(of: reference))) else { continue }
            last = end
            endings.insert(HlsIndex.ending(of: name))
        }
        return endings
    }

    // MARK: Claims

    /// The references with claims about files, each with its file.
    private var claiming: some Sequence<(Int, Playlist.Reference, Target)> {
        zip(playlist?.references ?? [], targets).lazy.enumerated().compactMap { number, pair in
            let (reference, target) = pair
            switch reference.role {
            case .segment, .map, .frame: return target.map { (number, reference, $0) }
            case .other: return reference.encryption == nil ? nil : target.map { (number, reference, $0) }
            case .playlist: return nil
            }
        }
    }

    private func way(of reference: Playlist.Reference, _ target: Target) -> HlsClaim.Way? {
        guard let playlist, !reference.isGuess else { return nil }
        if target.isExact { return HlsClaim.Way(isContested: contested.contains(target.identity)) }
        let uri = playlist.uri(of: reference)
        return HlsClaim.Way(
            bare: HlsURI.withoutQuery(uri).hashValue, whole: reference.bytes == nil ? uri.hashValue : nil,
            isByPath: target.name == nil)
    }

    /// Number of possible claims. References to missing files count too, because their names take memory.
    var claimCount: Int { playlist?.claimCount ?? 0 }

    /// Returns a hash of the whole reading.
    func sum(of record: HlsPlaylistRecord) -> Int {
        var hasher = Hasher()
        hasher.combine(stamp)
        hasher.combine(playlist?.text)
        hasher.combine(left.count)
        hasher.combine(contentKeys)
        for problem in problems { hasher.combine(problem.text) }
        forEachClaim(of: record) { target, claim in
            hasher.combine(target)
            claim.hash(into: &hasher)
        }
        return hasher.finalize()
    }

    var files: Set<FileIdentity> { Set(claiming.map(\.2.identity)) }

    /// Calls `body` for each claim about a file, one by one, because there may be half a million.
    func forEachClaim(of record: HlsPlaylistRecord, _ body: (Target, HlsClaim) -> Void) {
        let directory = HlsURI.directory(of: path)
        for (number, reference, target) in claiming {
            let use: HlsClaim.Use
            if let fault = record.fault {
                use = .failed(fault)
            } else if reference.role == .other {
                use = .mention(reference.encryption.map(HlsClaim.Form.init) ?? .unusable)
            } else {
                switch reference.encryption {
                case .unusable(let reason): use = .failed(reason)
                case .chain(let key, let vector, let cipher):
                    let name = KeyName.uri(playlist?.keys[key] ?? [], directory: directory, cipher: cipher)
                    let used = HlsSegment.Encryption(key: name, vector: vector)
                    use =
                        reference.role == .frame
                        ? .frames(used, meanings[key], isVectorKnown: !reference.isVectorImplied)
                        : .encrypted(used, meanings[key])
                case .samples, nil:
                    if let samples = samples[number] {
                        use = .samples(samples)
                    } else if reference.role == .frame {
                        continue
                    } else {
                        use = .plain
                    }
                }
            }
            body(
                target,
                HlsClaim(
                    bytes: reference.ciphertext, use: use, playlist: record, line: reference.line, path: target.path,
                    isMap: reference.role == .map, way: way(of: reference, target)))
        }
    }
}

/// The encrypted references of a playlist that stay as they are, with their key lines.
struct HlsLeft: Sendable {
    /// The end of the text of each problem about one.
    static let end = ": it stays as it is, with its key lines"

    private(set) var line = Int.max
    private(set) var count = 0

    mutating func add(_ line: Int) {
        self.line = min(self.line, line)
        count += 1
    }
}
