/// A playlist's statement about some bytes of one file.
struct HlsClaim: Sendable {
    enum Use: Equatable, Sendable {
        case plain
        case encrypted(HlsSegment.Encryption)
        /// The whole file is encrypted with this key. From an I-frame playlist, which does not know where the file's
        /// segments begin, so the vector counts only if no other claim gives one.
        case frames(HlsSegment.Encryption)
        /// Samples in the file are encrypted, as its boxes say.
        case samples(HlsSamples)
        /// The bytes cannot be decrypted, and why.
        case failed(PlaylistError)
    }

    /// Ciphertext offsets. Nil for the whole file.
    var bytes: Range<UInt64>?
    var use: Use
    var playlist: HlsPlaylistRecord
    var line: Int
    /// True for a media initialization section.
    var isMap = false

    /// Nil if the bytes can be shown.
    var failure: ViewError? {
        if case .failed(let reason) = use { playlist.error(reason) } else { nil }
    }

    /// True if both can hold for the same bytes.
    fileprivate func agrees(with other: HlsClaim) -> Bool {
        switch (use, other.use) {
        case (.plain, .plain): true
        case (.encrypted(let one), .encrypted(let other)): one.vector == other.vector && one.key.means(other.key)
        default: false
        }
    }
}

/// A file of a playlist with `SAMPLE-AES` keys.
package struct HlsSamples: Equatable, Sendable {
    /// The URI of the key in force. Nil if there is none, or if parts of the file have different ones.
    package var uri: [UInt8]?
    /// True if there is a key, also without one URI for the whole file.
    package var hasKey: Bool
    /// The directory of the playlist.
    package var directory: [UInt8]
    /// The path of the init segment. Nil if the playlist names none, or it is no file of the tree.
    package var initial: [UInt8]?
}

/// Combines the claims of several playlists about one file.
struct HlsClaimMerge {
    private let claims: [HlsClaim]
    private let size: UInt64

    /// - Parameter size: bytes of the file. A byte range of the whole file equals none.
    init(_ claims: [HlsClaim], size: UInt64) {
        self.size = size
        self.claims = claims.map {
            var claim = $0
            if claim.bytes == 0..<size { claim.bytes = nil }
            return claim
        }
    }

    /// The file's samples if its claims are about these.
    ///
    /// - Throws: `.malformed` if claims contradict each other.
    func samples() throws(ViewError) -> HlsSamples? {
        var found: (claim: HlsClaim, samples: HlsSamples)?
        for claim in claims {
            guard case .samples(let samples) = claim.use else { continue }
            guard let known = found else {
                found = (claim, samples)
                continue
            }
            if samples.initial != known.samples.initial, samples.initial != nil, known.samples.initial != nil {
                throw conflict(known.claim, claim)
            }
            found?.samples.initial = known.samples.initial ?? samples.initial
            // The ranges of one file can have several keys, which its boxes tell apart.
            if known.samples.hasKey, samples.hasKey, samples.uri != known.samples.uri {
                found?.samples.uri = nil
            } else if samples.hasKey {
                found?.samples.uri = samples.uri
                found?.samples.hasKey = true
            }
        }
        for claim in claims {
            switch claim.use {
            case .encrypted, .frames: if let found { throw conflict(found.claim, claim) }
            case .plain, .samples, .failed: break
            }
        }
        return found?.samples
    }

    /// Equal claims count once. Nil if nothing is encrypted.
    ///
    /// - Throws: `.malformed` if two claims contradict each other, or if no playlist can be shown decrypted.
    func segment() throws(ViewError) -> HlsSegment? {
        let firm = claims.filter { $0.failure == nil }
        guard !firm.isEmpty else { throw claims.lazy.compactMap(\.failure).first ?? .malformed("no playlist") }
        let ordered = firm.filter { if case .frames = $0.use { false } else { true } }.sorted(by: isBefore)
        try check(ordered)
        var parts: [HlsSegment.Part] = []
        var mapEnd: UInt64?
        for claim in ordered {
            // A claim for the same bytes as the one before agrees with it.
            guard case .encrypted(let encryption) = claim.use, parts.isEmpty || parts.last?.bytes != claim.bytes else {
                continue
            }
            if let end = parts.last?.bytes?.upperBound, mapEnd == end, claim.bytes?.lowerBound == end + 16 {
                // The range has the length of the plaintext, which is a multiple of 16: the padding takes another block.
                parts[parts.count - 1].bytes = parts[parts.count - 1].bytes.map { $0.lowerBound..<(end + 16) }
            }
            mapEnd = claim.isMap ? claim.bytes?.upperBound : nil
            parts.append(HlsSegment.Part(bytes: claim.bytes, encryption: encryption))
        }
        for claim in firm {
            guard case .frames(let encryption) = claim.use else { continue }
            if ordered.isEmpty && parts.isEmpty {
                parts = [HlsSegment.Part(bytes: nil, encryption: encryption)]
            } else if !parts.contains(where: { $0.encryption.key.means(encryption.key) }) {
                throw conflict(ordered.first ?? firm[0], claim)
            }
        }
        return parts.isEmpty ? nil : HlsSegment(parts)
    }

    private func range(_ claim: HlsClaim) -> Range<UInt64> { claim.bytes ?? 0..<max(size, 1) }

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
                guard one.agrees(with: claim), range(one) == bytes || one.use == .plain else {
                    throw conflict(one, claim)
                }
            }
            if let farthest, claim.use != .plain, range(farthest).overlaps(bytes) { throw conflict(farthest, claim) }
            if claim.use == .plain, farthest.map({ range($0).upperBound < bytes.upperBound }) ?? true {
                farthest = claim
            }
        }
    }

    private func conflict(_ one: HlsClaim, _ other: HlsClaim) -> ViewError {
        let lines = [one, other].map { HlsProblem.location($0.playlist.path, line: $0.line) }
        return .malformed("two playlist lines contradict each other on its encryption: \(lines[0]) and \(lines[1])")
    }
}
