/// A playlist's statement about some bytes of one file.
struct HlsClaim: Sendable {
    enum Use: Hashable, Sendable {
        /// The bytes have no key in force.
        case plain
        case encrypted(HlsSegment.Encryption, KeyMeanings.Meaning)
        /// The whole file is encrypted with this key, according to an I-frame playlist. The vector counts only if other
        /// claims give none, because such a playlist does not know where the file's segments begin.
        case frames(HlsSegment.Encryption, KeyMeanings.Meaning, isVectorKnown: Bool)
        /// The file's samples are encrypted, as its boxes say.
        case samples(HlsSamples)
        /// The bytes cannot be decrypted, for this reason.
        case failed(PlaylistError)
        /// A tag names bytes of the file under a key, but not as a segment, so it says nothing about the file.
        case mention(Form)
    }

    /// The form of the ciphertext, as meant by the keys in force at a line.
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

    /// The way from a URI to the file.
    struct Way: Hashable, Sendable {
        /// A hash of the URI without its query. Nil if the URI as written is the file.
        var bare: Int?
        /// A hash of the whole URI. Nil for a byte range, because the ranges of one file can have different queries.
        var whole: Int?
        /// True if the mount's text keeps the URI, and players get the file for it, as without the query.
        var isByPath = false
        /// True if another URI of the playlist leads to the file in this way, and may mean another file.
        var isContested = false
    }

    /// Ciphertext offsets; nil for the whole file.
    var bytes: Range<UInt64>?
    var use: Use
    var playlist: HlsPlaylistRecord
    var line: Int
    /// The file's path at the reading of the playlist.
    var path: [UInt8]
    /// True for a media initialization section.
    var isMap = false
    /// Nil for a guess, because it may be no URI.
    var way: Way?

    /// Hashes the statement without its place in the playlist.
    func hash(into hasher: inout Hasher) {
        hasher.combine(bytes)
        hasher.combine(use)
        hasher.combine(isMap)
    }

    /// The reason for which the bytes cannot be shown; nil if they can.
    var failure: ViewError? {
        if case .failed(let reason) = use { playlist.error(reason) } else { nil }
    }

    /// True if a key is in force at the line. Its key lines then stay unless the bytes are shown as plaintext.
    var hasKey: Bool {
        switch use {
        case .plain: false
        case .samples(let samples): samples.hasKey
        case .encrypted, .frames, .failed, .mention: true
        }
    }

    var isMention: Bool { if case .mention = use { true } else { false } }

    /// False if the URI as written is not a file.
    var isExact: Bool { way?.bare == nil }

    /// Returns true if different URIs lead to the file, which can belong to only one of them.
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

    /// Returns true if both can hold for the same bytes.
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
    /// The description of the samples. Where the file's own boxes have one, that counts.
    package enum Description: Hashable, Sendable {
        /// The `moov` of the file itself, of its init segment, or of both, declares encrypted samples.
        case protected
        /// The boxes declare all samples clear, or the file is text.
        case clear
        /// The boxes leave it open, for this reason.
        case unusable(String)
    }

    /// The init segment.
    package struct Initial: Hashable, Sendable {
        /// Relative to the source.
        package var path: [UInt8]
        /// Nil for the whole file.
        package var bytes: Range<UInt64>?
    }

    /// The URI of the key in force. Nil without one, or if parts of the file have different ones.
    package var uri: [UInt8]?
    /// True if a key is in force, even without one URI for the whole file.
    package var hasKey: Bool
    /// The directory of the playlist.
    package var directory: [UInt8]
    /// Nil if the playlist names none, or one that is not a file of the tree.
    package var initial: Initial?
    package var description: Description
    /// A hash of the init segment's content. Two files can hold the same one.
    var initialDigest = 0
    /// The byte ranges of a file of init segments only, nil for the whole file. Empty for any other file.
    package var maps: [Range<UInt64>?] = []
}

/// Decides about a file, from all claims about it.
struct HlsClaimMerge {
    private let claims: [HlsClaim]
    private let mentions: [HlsClaim]
    /// The claims of URIs that may mean another file.
    private let uncertain: [HlsClaim]
    /// A claim that prevents the file from being decrypted for the others.
    private let contested: HlsClaim?
    private let size: UInt64

    /// - Parameters:
    ///   - size: bytes of the file. A byte range of the whole file equals none.
    ///   - isAmbiguous: true if different URIs lead to the file. Then only claims of exact URIs count.
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
            // Refuse samples instead of leaving them: their init segment may be shown without its encryption.
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

    /// Uncovered bytes of a file with encrypted byte ranges.
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

    /// Returns the decision, unless a tag names bytes under a key of which it decrypts only a part, or in another form,
    /// because a player could not use what is left of them.
    ///
    /// - Throws: `.malformed` for samples, which must not be left.
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
        case .protected, .clear: return .samples(samples)
        // Without a key, the playlist declares the file to be plaintext.
        case .unusable where !samples.hasKey: return .clear
        case .unusable(let reason): throw .malformed(reason)
        }
    }

    /// Returns the file's samples if its claims are about these.
    ///
    /// - Throws: `.malformed` if claims contradict each other.
    private func samples() throws(ViewError) -> HlsSamples? {
        // The segments' lines describe a file with a map and segments.
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
            // The ranges of one file can have several keys, distinguished by its boxes.
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

    /// Returns the samples of a file of init segments, each with a description of its own.
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

    /// Refuses the file for a part that cannot be decrypted, unless another playlist's usable claim has these bytes.
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

    /// Returns the file's chains, or nil if nothing is encrypted. Equal claims count once.
    ///
    /// - Throws: `.malformed` if two claims contradict each other, or if no playlist can be shown decrypted.
    private func segment() throws(ViewError) -> HlsSegment? {
        let firm = claims.filter { $0.failure == nil }
        let ordered = firm.filter { if case .frames = $0.use { false } else { true } }.sorted(by: isBefore)
        // Plain claims do not cover a failure, because a line without a key says nothing about an unusable one.
        try checkFailures(firm.filter { !$0.isPlain })
        try check(ordered)
        var parts: [HlsSegment.Part] = []
        var meanings: Set<KeyMeanings.Meaning> = []
        var mapEnd: UInt64?
        for claim in ordered {
            guard case .encrypted(let encryption, let meaning) = claim.use else { continue }
            meanings.insert(meaning)
            // Skip a claim for the same bytes as the one before, because the two agree.
            guard parts.isEmpty || parts.last?.bytes != claim.bytes else { continue }
            if let end = parts.last?.bytes?.upperBound, mapEnd == end, claim.bytes?.lowerBound == end + 16 {
                // The range has the plaintext's length, a multiple of 16, so the padding takes another block.
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

    /// Compares each claim with its neighbour, and with the plain range before it that ends last, because a plain range
    /// can cover several others if they are plain too.
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
