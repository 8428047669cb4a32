/// A playlist's statement about some bytes of one file.
struct HlsClaim: Sendable {
    enum Use: Hashable, Sendable {
        /// No key is in force.
        case plain
        case encrypted(HlsSegment.Encryption, KeyMeanings.Meaning)
        /// The whole file is encrypted with this key. From an I-frame playlist, which does not know where the file's
        /// segments begin, so the vector counts only if no other claim gives one.
        case frames(HlsSegment.Encryption, KeyMeanings.Meaning, isVectorKnown: Bool)
        /// Samples in the file are encrypted, as its boxes say.
        case samples(HlsSamples)
        /// The bytes cannot be decrypted, and why.
        case failed(PlaylistError)
        /// A tag names bytes of the file under a key, but not as a segment. That says nothing about the file.
        case mention(Form)
    }

    /// The form of the ciphertext that the keys in force at a line mean.
    enum Form: Hashable, Sendable {
        case chain, samples, unusable

        init(_ encryption: Playlist.Encryption) {
            switch encryption {
            case .chain: self = .chain
            case .samples: self = .samples
            case .unusable: self = .unusable
            }
        }
    }

    /// How a URI leads to the file.
    struct Way: Hashable, Sendable {
        /// A hash of the URI without its query. Nil if the URI as it is written is the file.
        var bare: Int?
        /// A hash of the whole URI. Nil for a byte range: those of one file can be asked for with different queries.
        var whole: Int?
        /// True if the mount's text keeps the URI, and players get the file for it, as without the query.
        var isByPath = false
        /// True if another URI of the playlist leads to the file so, and may mean another one.
        var isContested = false
    }

    /// Ciphertext offsets. Nil for the whole file.
    var bytes: Range<UInt64>?
    var use: Use
    var playlist: HlsPlaylistRecord
    var line: Int
    /// The file's path when the playlist was read.
    var path: [UInt8]
    /// True for a media initialization section.
    var isMap = false
    /// Nil for a guess, which need not be a URI.
    var way: Way?

    /// Adds the statement, without its place in the playlist.
    func hash(into hasher: inout Hasher) {
        hasher.combine(bytes)
        hasher.combine(use)
        hasher.combine(isMap)
    }

    /// Nil if the bytes can be shown.
    var failure: ViewError? {
        if case .failed(let reason) = use { playlist.error(reason) } else { nil }
    }

    /// True if a key is in force at the line, so that its key lines stay unless the bytes are shown as plaintext.
    var hasKey: Bool {
        switch use {
        case .plain: false
        case .samples(let samples): samples.hasKey
        case .encrypted, .frames, .failed, .mention: true
        }
    }

    var isMention: Bool { if case .mention = use { true } else { false } }

    /// False if the URI as it is written is no file.
    var isExact: Bool { way?.bare == nil }

    /// True if different URIs lead to the file, which can be the file of one of them only.
    static func areAmbiguous(_ claims: [HlsClaim]) -> Bool {
        var known: Way?
        for way in claims.lazy.compactMap(\.way) {
            guard let first = known else {
                known = way
                continue
            }
            if way.bare != first.bare { return true }
            if let whole = way.whole, let other = first.whole, whole != other { return true }
            known?.whole = first.whole ?? way.whole
        }
        return false
    }

    fileprivate var isPlain: Bool { if case .plain = use { true } else { false } }

    /// True if both can hold for the same bytes.
    fileprivate func agrees(with other: HlsClaim) -> Bool {
        switch (use, other.use) {
        case (.plain, .plain): true
        case (.encrypted(let one, let key), .encrypted(let other, let otherKey)):
            one.vector == other.vector && key == otherKey
        default: false
        }
    }
}

/// A file of a playlist with `SAMPLE-AES` keys.
package struct HlsSamples: Hashable, Sendable {
    /// The description of the samples, from which the boxes of the file itself take over where they have one.
    package enum Description: Hashable, Sendable {
        /// The `moov` of the file itself, of its init segment, or of both, says that samples are encrypted.
        case protected
        /// The boxes say that all samples are clear, or the file is text.
        case clear(String)
        /// The boxes do not say it, and why.
        case unusable(String)
    }

    /// The init segment.
    package struct Initial: Hashable, Sendable {
        /// Relative to the source.
        package var path: [UInt8]
        /// Nil for the whole file.
        package var bytes: Range<UInt64>?
    }

    /// The URI of the key in force. Nil if there is none, or if parts of the file have different ones.
    package var uri: [UInt8]?
    /// True if there is a key, also without one URI for the whole file.
    package var hasKey: Bool
    /// The directory of the playlist.
    package var directory: [UInt8]
    /// Nil if the playlist names none, or it is no file of the tree.
    package var initial: Initial?
    package var description: Description
    /// The content of the init segment. Two files can hold the same one.
    var initialDigest = 0
    /// The byte ranges of a file that is nothing but init segments. Nil for the whole file. Empty for any other file.
    package var maps: [Range<UInt64>?] = []
}

/// Makes the decision about a file from all claims about it.
struct HlsClaimMerge {
    private let claims: [HlsClaim]
    private let mentions: [HlsClaim]
    /// The claims of URIs that may mean another file.
    private let uncertain: [HlsClaim]
    /// A claim because of which the file cannot be decrypted for the others.
    private let contested: HlsClaim?
    private let size: UInt64

    /// - Parameters:
    ///   - size: bytes of the file. A byte range of the whole file equals none.
    ///   - isAmbiguous: true if different URIs lead to the file. Then only those count that are the file as they are written.
    init(_ claims: [HlsClaim], size: UInt64, isAmbiguous: Bool) {
        self.size = size
        let certain = isAmbiguous ? claims.filter(\.isExact) : claims
        uncertain = isAmbiguous ? claims.filter { !$0.isExact } : []
        contested =
            certain.first { $0.way?.isContested == true } ?? uncertain.first { $0.way?.isByPath == true && $0.hasKey }
        mentions = certain.filter(\.isMention)
        self.claims = certain.lazy.filter { !$0.isMention }.map {
            var claim = $0
            if claim.bytes == 0..<size { claim.bytes = nil }
            return claim
        }
    }

    var decision: HlsDecision {
        do throws(ViewError) {
            // Not left: their init segment may be shown without its encryption.
            for claim in uncertain + (contested == nil ? [] : claims) {
                guard case .samples = claim.use else { continue }
                throw .malformed(otherFile(claim))
            }
            if claims.isEmpty { return .asItIs }
            if let contested { return .left(otherFile(contested)) }
            if let samples = try samples() { return try checked(try decision(on: samples)) }
            return try checked(try segment().map { .chains($0) } ?? .clear)
        } catch {
            return .refused(error)
        }
    }

    private func otherFile(_ claim: HlsClaim) -> String {
        let line = HlsProblem.location(claim.playlist.path, line: claim.line)
        return "\(line) leads to it, and so does another URI, which may mean another file"
    }

    /// Bytes of a file with encrypted byte ranges that no claim covers.
    var gaps: [Range<UInt64>] {
        var gaps: [Range<UInt64>] = []
        var end: UInt64 = 0
        for bytes in claims.map(range).sorted(by: { $0.lowerBound < $1.lowerBound }) {
            if bytes.lowerBound > end { gaps.append(end..<min(bytes.lowerBound, size)) }
            end = max(end, bytes.upperBound)
        }
        if end < size { gaps.append(end..<size) }
        return gaps.filter { !$0.isEmpty }
    }

    // MARK: Mentions

    /// The decision, unless a tag names bytes under a key of which it decrypts a part only, or in another form: a player
    /// could not use what is left of them.
    ///
    /// - Throws: `.malformed` for samples, which are not left.
    private func checked(_ decision: HlsDecision) throws(ViewError) -> HlsDecision {
        for mention in mentions {
            guard case .mention(let form) = mention.use else { continue }
            let line = HlsProblem.location(mention.playlist.path, line: mention.line)
            switch decision {
            case .chains(let segment):
                let bytes = range(mention)
                let isBeside = mention.bytes != nil && !segment.parts.contains { range($0.bytes).overlaps(bytes) }
                if isBeside || decision.shows(mention.bytes, form, size: size) { continue }
                return .left("\(line) names other bytes of it under a key than a segment's")
            case .samples where form != .samples:
                throw .malformed("\(line) names it under a key of another method")
            case .samples, .clear, .left, .playlist, .refused, .asItIs: break
            }
        }
        return decision
    }

    // MARK: Samples

    private func decision(on samples: HlsSamples) throws(ViewError) -> HlsDecision {
        switch samples.description {
        case .protected: return .samples(samples)
        // Without a key, the playlist says that the file is plaintext.
        case .unusable where !samples.hasKey: return .clear
        case .clear: return .samples(samples)
        case .unusable(let reason): throw .malformed(reason)
        }
    }

    /// The file's samples if its claims are about these.
    ///
    /// - Throws: `.malformed` if claims contradict each other.
    private func samples() throws(ViewError) -> HlsSamples? {
        // A file with a map and segments is described by the segments' lines.
        var found = claims.allSatisfy(\.isMap) ? maps() : nil
        for claim in claims where !claim.isMap {
            guard case .samples(let samples) = claim.use else { continue }
            guard let known = found else {
                found = (claim, samples)
                continue
            }
            if samples.initialDigest != known.samples.initialDigest, samples.initial != nil,
                known.samples.initial != nil
            {
                throw conflict(known.claim, claim)
            }
            if known.samples.initial == nil, samples.initial != nil {
                found?.samples.initial = samples.initial
                found?.samples.initialDigest = samples.initialDigest
                found?.samples.description = samples.description
            }
            // The ranges of one file can have several keys, which its boxes tell apart.
            if known.samples.hasKey, samples.hasKey, samples.uri != known.samples.uri {
                found?.samples.uri = nil
            } else if samples.hasKey {
                found?.samples.uri = samples.uri
                found?.samples.hasKey = true
            }
            if samples.hasKey, case .unusable = samples.description {
                found?.samples.description = samples.description
            }
        }
        guard let found else { return nil }
        for claim in claims {
            switch claim.use {
            case .encrypted, .frames: throw conflict(found.claim, claim)
            case .plain, .samples, .failed, .mention: break
            }
        }
        try checkFailures(claims.filter { if case .samples = $0.use { true } else { false } })
        return found.samples
    }

    /// A file of init segments, each with a description of its own.
    private func maps() -> (claim: HlsClaim, samples: HlsSamples)? {
        var found: (claim: HlsClaim, samples: HlsSamples)?
        for claim in claims {
            guard case .samples(let samples) = claim.use else { continue }
            var all = found?.samples ?? samples
            if !all.maps.contains(claim.bytes) { all.maps.append(claim.bytes) }
            switch (all.description, samples.description) {
            case (.unusable, _) where all.hasKey: break
            case (_, .unusable) where !samples.hasKey: break
            case (.protected, .clear): break
            default: (all.description, all.hasKey) = (samples.description, samples.hasKey)
            }
            found = (found?.claim ?? claim, all)
        }
        return found
    }

    /// A part that cannot be decrypted refuses the file, unless a usable claim, of another playlist, has these bytes, too.
    ///
    /// - Throws: the failure.
    private func checkFailures(_ usable: [HlsClaim]) throws(ViewError) {
        guard usable.count < claims.count else { return }
        var rest = usable.sorted(by: isBefore)[...]
        var end: UInt64 = 0
        for claim in claims.sorted(by: isBefore) {
            guard let failure = claim.failure else { continue }
            let bytes = range(claim)
            while let next = rest.first.map(range), next.lowerBound <= bytes.lowerBound {
                end = max(end, next.upperBound)
                rest.removeFirst()
            }
            if end < bytes.upperBound { throw failure }
        }
    }

    // MARK: Chains

    /// Equal claims count once. Nil if nothing is encrypted.
    ///
    /// - Throws: `.malformed` if two claims contradict each other, or if no playlist can be shown decrypted.
    private func segment() throws(ViewError) -> HlsSegment? {
        let firm = claims.filter { $0.failure == nil }
        let ordered = firm.filter { if case .frames = $0.use { false } else { true } }.sorted(by: isBefore)
        // A line without a key says nothing about one that cannot be used.
        try checkFailures(firm.filter { !$0.isPlain })
        try check(ordered)
        var parts: [HlsSegment.Part] = []
        var meanings: Set<KeyMeanings.Meaning> = []
        var mapEnd: UInt64?
        for claim in ordered {
            guard case .encrypted(let encryption, let meaning) = claim.use else { continue }
            meanings.insert(meaning)
            // A claim for the same bytes as the one before agrees with it.
            guard parts.isEmpty || parts.last?.bytes != claim.bytes else { continue }
            if let end = parts.last?.bytes?.upperBound, mapEnd == end, claim.bytes?.lowerBound == end + 16 {
                // The range has the length of the plaintext, which is a multiple of 16: the padding takes another block.
                parts[parts.count - 1].bytes = parts[parts.count - 1].bytes.map { $0.lowerBound..<(end + 16) }
            }
            mapEnd = claim.isMap ? claim.bytes?.upperBound : nil
            parts.append(HlsSegment.Part(bytes: claim.bytes, encryption: encryption))
        }
        for claim in firm {
            guard case .frames(let encryption, let meaning, let isVectorKnown) = claim.use else { continue }
            if ordered.isEmpty && parts.isEmpty {
                guard isVectorKnown else {
                    let line = HlsProblem.location(claim.playlist.path, line: claim.line)
                    throw .malformed("\(line): its key has no IV, and no media playlist says which one it is")
                }
                parts = [HlsSegment.Part(bytes: nil, encryption: encryption)]
                meanings = [meaning]
            } else if !meanings.contains(meaning) {
                throw conflict(ordered.first ?? firm[0], claim)
            }
        }
        return parts.isEmpty ? nil : HlsSegment(parts)
    }

    private func range(_ claim: HlsClaim) -> Range<UInt64> { range(claim.bytes) }

    private func range(_ bytes: Range<UInt64>?) -> Range<UInt64> { bytes ?? 0..<max(size, 1) }

    private func isBefore(_ one: HlsClaim, _ other: HlsClaim) -> Bool {
        let (first, second) = (range(one), range(other))
        if first != second { return (first.lowerBound, first.upperBound) < (second.lowerBound, second.upperBound) }
        if one.playlist.path != other.playlist.path {
            return one.playlist.path.lexicographicallyPrecedes(other.playlist.path)
        }
        return one.line < other.line
    }

    /// Compares each claim with its neighbour, and with the plain range before it that ends last: a plain range can cover
    /// several others if they are plain too.
    private func check(_ ordered: [HlsClaim]) throws(ViewError) {
        var farthest: HlsClaim?
        for (one, claim) in zip([nil] + ordered, ordered) {
            let bytes = range(claim)
            if let one, range(one) == bytes || range(one).overlaps(bytes) {
                guard one.agrees(with: claim), range(one) == bytes || one.isPlain else {
                    throw conflict(one, claim)
                }
            }
            if let farthest, !claim.isPlain, range(farthest).overlaps(bytes) { throw conflict(farthest, claim) }
            if claim.isPlain, farthest.map({ range($0).upperBound < bytes.upperBound }) ?? true {
                farthest = claim
            }
        }
    }

    private func conflict(_ one: HlsClaim, _ other: HlsClaim) -> ViewError {
        let lines = [one, other].map { HlsProblem.location($0.playlist.path, line: $0.line) }
        return .malformed("two playlist lines contradict each other on its encryption: \(lines[0]) and \(lines[1])")
    }
}
