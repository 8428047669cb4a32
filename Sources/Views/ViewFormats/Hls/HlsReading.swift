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
        /// The file's name beside the playlist, if it is not where the URI says.
        var name: [UInt8]?
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
    /// The first line and the number of encrypted references that stay as they are, with their key lines.
    private(set) var left: (line: Int, count: Int)?
    /// The files of segments and maps, which the mount shows decrypted or refuses.
    private var segmentFiles: Set<FileIdentity> = []

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
        targets.reserveCapacity(playlist.references.count)
        var last: Playlist.Reference?
        var reasons: [String?] = []
        for reference in playlist.references {
            let uri = playlist.uri(of: reference)
            if let last, last.role == reference.role, last.isLookedUp == reference.isLookedUp,
                playlist.uri(of: last) == uri
            {
                // A thousand byte ranges of one file are looked up once.
                targets.append(targets[targets.count - 1])
                reasons.append(reasons[reasons.count - 1])
            } else {
                var reason: String?
                targets.append(target(of: Array(uri), reference, directory, playlist, in: root, &reason))
                reasons.append(reason)
            }
            last = reference
        }
        leaveAmbiguous(playlist, &reasons)
        for (reference, target) in zip(playlist.references, targets) where reference.role != .other {
            if let target { segmentFiles.insert(target.identity) }
        }
        reportLeft(playlist, reasons)
    }

    /// The file that a reference leads to.
    /// - Parameter reason: receives the reason if there is none.
    private mutating func target(
        of uri: [UInt8], _ reference: Playlist.Reference, _ directory: [UInt8], _ playlist: Playlist,
        in root: Descriptor, _ reason: inout String?
    ) -> Target? {
        guard reference.isLookedUp else { return nil }
        // A playlist without keys is shown as it is.
        let mayBeRewritten = reference.role == .playlist || playlist.usesKeys
        let candidates = HlsURI.candidates(uri, directory: directory).filter { mayBeRewritten || $0.name == nil }
        for candidate in candidates { names.insert(HlsURI.normalized(candidate.path).hashValue) }
        for candidate in candidates {
            do throws(StoreError) {
                let status = try root.opened(beneath: candidate.path).status()
                guard status.st_mode & S_IFMT == S_IFREG else { throw .damaged("it is not a regular file") }
                let identity = FileIdentity(status)
                if reference.role == .playlist, let name = candidate.name,
                    identity == stamp.identity || !HlsIndex.isPlaylistName(name)
                {
                    continue
                }
                return Target(
                    identity: identity, path: candidate.path, size: UInt64(max(status.st_size, 0)),
                    name: candidate.name)
            } catch {
                // Report the first path: it is the one that RFC 3986 gives.
                let name = candidate.name.map { "there is no file \(shown($0)) beside the playlist" }
                reason = reason ?? (error == .system(.noSuchFileOrDirectory) ? name : nil) ?? Self.text(error)
            }
        }
        reason = reason ?? "not relative to the playlist"
        return nil
    }

    /// Leaves references as they are whose files are found by name only, and by other references under another URI:
    /// several servers can have a `1.ts`.
    private mutating func leaveAmbiguous(_ playlist: Playlist, _ reasons: inout [String?]) {
        guard targets.contains(where: { $0?.name != nil }) else { return }
        var uris: [FileIdentity: ArraySlice<UInt8>] = [:]
        var ambiguous: Set<FileIdentity> = []
        for (reference, target) in zip(playlist.references, targets) {
            guard let target else { continue }
            let uri = playlist.uri(of: reference)
            // The parts of a file can be asked for with different queries.
            let known = reference.bytes == nil ? uri : HlsURI.withoutQuery(uri)
            if let other = uris.updateValue(known, forKey: target.identity), other != known {
                ambiguous.insert(target.identity)
            }
        }
        for number in targets.indices {
            guard let target = targets[number], let name = target.name, ambiguous.contains(target.identity) else {
                continue
            }
            targets[number] = nil
            reasons[number] = "other URIs of the playlist end with \(shown(name)) too"
        }
    }

    /// How the mount shows a reference.
    func appearance(_ number: Int, of reference: Playlist.Reference) -> ShownReference {
        let target = targets[number]
        var result = ShownReference()
        result.uri = target?.name.map { HlsURI.reference(to: $0, isAttribute: playlist?.text[reference.start] == 0x23) }
        switch reference.encryption {
        case nil: result.needsKeys = reference.role == .playlist && target == nil
        case .unusable: result.needsKeys = true
        case .chain, .samples:
            let isShown = target.map { reference.role != .other || segmentFiles.contains($0.identity) } ?? false
            result.needsKeys = !isShown
        }
        return result
    }

    private mutating func reportLeft(_ playlist: Playlist, _ reasons: [String?]) {
        var unusable: Set<PlaylistError> = []
        for (number, reference) in playlist.references.enumerated() where reference.role != .playlist {
            let isLeft = appearance(number, of: reference).needsKeys
            if isLeft {
                if left == nil { left = (reference.line, 0) }
                left?.count += 1
            }
            if case .unusable(let defect) = reference.encryption, unusable.insert(defect).inserted { report(defect) }
            guard targets[number] == nil ? isLeft || reference.role != .other : isLeft && reference.role == .other
            else {
                continue
            }
            let reason = reasons[number] ?? "no segment, and not decrypted"
            let end = isLeft ? ": it stays as it is, with its key lines" : ""
            let uri = HlsURI.text(Array(playlist.uri(of: reference)))
            report(PlaylistError(line: reference.line, text: "\(uri): \(reason)\(end)"))
        }
    }

    static func text(_ error: StoreError) -> String {
        switch error {
        case .system(Errno(rawValue: EXDEV)): "points outside the tree"
        case .system(.noSuchFileOrDirectory): "there is no such file"
        default: error.reason
        }
    }

    /// The endings of the names of encrypted segments, such as `.ts`.
    var endings: Set<[UInt8]> {
        guard let playlist else { return [] }
        var endings: Set<[UInt8]> = []
        for reference in playlist.references where reference.encryption != nil && reference.role == .segment {
            guard let name = HlsURI.fileName(of: Array(playlist.uri(of: reference))) else { continue }
            endings.insert(HlsIndex.ending(of: name))
        }
        return endings
    }

    /// The files of which other tags name the last bytes, which can be padding.
    var tails: Set<FileIdentity> {
        guard let playlist else { return [] }
        return Set(
            zip(playlist.references, targets).lazy.compactMap { reference, target in
                guard let target, reference.isTail(of: target.size) else { return nil }
                return target.identity
            })
    }

    // MARK: Claims

    /// Each segment, frame and map with its file.
    var segments: some Sequence<(Playlist.Reference, Target)> {
        zip(playlist?.references ?? [], targets).lazy.compactMap { reference, target in
            switch reference.role {
            case .segment, .map, .frame: target.map { (reference, $0) }
            case .other, .playlist: nil
            }
        }
    }

    private func samples(_ reference: Playlist.Reference, _ key: Int?, _ directory: [UInt8]) -> HlsSamples {
        HlsSamples(
            uri: key.flatMap { playlist?.keys[$0] }, hasKey: key != nil, directory: directory,
            initial: reference.map.flatMap { targets[$0]?.path })
    }

    /// Passes on each claim about a file, one by one, because there may be half a million.
    func forEachClaim(of record: HlsPlaylistRecord, _ body: (Target, HlsClaim) -> Void) {
        let directory = HlsURI.directory(of: path)
        for (reference, target) in segments {
            let use: HlsClaim.Use
            if let fault = record.fault {
                use = .failed(fault)
            } else {
                switch reference.encryption {
                case .unusable(let reason): use = .failed(reason)
                case .chain(let key, let vector, let cipher):
                    let name = KeyName.uri(playlist?.keys[key] ?? [], directory: directory, cipher: cipher)
                    let used = HlsSegment.Encryption(key: name, vector: vector)
                    use = reference.role == .frame ? .frames(used) : .encrypted(used)
                case .samples(let key): use = .samples(samples(reference, key, directory))
                case nil where playlist?.usesSamples == true: use = .samples(samples(reference, nil, directory))
                case nil:
                    if reference.role == .frame { continue }
                    use = .plain
                }
            }
            body(
                target,
                HlsClaim(
                    bytes: reference.ciphertext, use: use, playlist: record, line: reference.line,
                    isMap: reference.role == .map))
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
    let size: UInt64
    /// The first line and the number of encrypted references that stay as they are.
    let left: (line: Int, count: Int)?
    /// The endings of the names of encrypted segments.
    let endings: Set<[UInt8]>
    let problems: [HlsProblem]
    /// The files that the playlist can have claims about, and the maximum number of claims.
    let files: [FileIdentity]
    let claimCount: Int
    /// The files that the playlist's text has byte ranges of.
    let ranged: Set<FileIdentity>
    let names: Set<Int>

    /// The files that the playlist's text has byte ranges of, to their last bytes.
    let tails: Set<FileIdentity>

    /// - Parameter refusal: why the playlist's claims are not used.
    init(_ reading: HlsReading, refusal: PlaylistError? = nil) {
        let playlist = reading.playlist
        let text = playlist?.rendered(reading.appearance)
        let tooLong = playlist != nil && text == nil ? PlaylistError(line: 0, text: "its text becomes too long") : nil
        let refusal = refusal ?? tooLong
        path = reading.path
        stamp = reading.stamp
        fault = refusal ?? reading.fault
        isPlaylist = playlist != nil || fault != nil
        size = UInt64(text?.count ?? 0)
        left = reading.left
        problems =
            (refusal.map { [HlsProblem(path: reading.path, line: $0.line, text: $0.text)] } ?? []) + reading.problems
        files = refusal == nil ? Array(Set(reading.segments.map(\.1.identity))) : []
        claimCount = refusal == nil ? reading.segments.reduce(0) { count, _ in count + 1 } : 0
        ranged = Set(reading.segments.compactMap { $0.bytes == nil ? nil : $1.identity })
        tails = reading.tails
        names = reading.names
        endings = reading.endings
    }

    var error: ViewError? { fault.map(error) }

    func error(_ defect: PlaylistError) -> ViewError {
        .malformed("\(HlsProblem.location(path, line: defect.line)): \(defect.text)")
    }
}
