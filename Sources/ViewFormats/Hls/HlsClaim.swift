/// A playlist's statement about some bytes of one file.
struct HlsClaim: Sendable {
    enum Use: Sendable {
        case plain
        case encrypted(HlsSegment.Encryption)
        /// The whole file is encrypted with this key. From an I-frame playlist, which does not know where the file's
        /// segments begin, so the vector counts only if no other claim gives one.
        case frames(HlsSegment.Encryption)
        /// The playlist cannot be shown decrypted.
        case failed
    }

    /// Ciphertext offsets. Nil for the whole file.
    var bytes: Range<UInt64>?
    var use: Use
    var playlist: HlsPlaylistRecord
    var line: Int

    /// True if both can hold for the same bytes.
    fileprivate func agrees(with other: HlsClaim) -> Bool {
        switch (use, other.use) {
        case (.plain, .plain): true
        case (.encrypted(let one), .encrypted(let other)): one.means(other)
        default: false
        }
    }

    fileprivate var isPlain: Bool {
        if case .plain = use { true } else { false }
    }

    var isFailed: Bool {
        if case .failed = use { true } else { false }
    }

    fileprivate var frames: HlsSegment.Encryption? {
        if case .frames(let encryption) = use { encryption } else { nil }
    }
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

    /// Equal claims count once. Nil if nothing is encrypted.
    ///
    /// - Throws: `.malformed` if two claims contradict each other, or if no playlist can be shown decrypted.
    func segment() throws(ViewError) -> HlsSegment? {
        let firm = claims.filter { !$0.isFailed }
        guard !firm.isEmpty else { throw claims.compactMap(\.playlist.error).first ?? .malformed("no playlist") }
        var ordered = firm.filter { $0.frames == nil }
        ordered.sort(by: isBefore)
        for (one, other) in zip(ordered, ordered.dropFirst()) { try checkNeighbours(one, other) }
        try checkPlain(ordered)
        var parts: [HlsSegment.Part] = []
        for claim in ordered {
            guard case .encrypted(let encryption) = claim.use else { continue }
            let part = HlsSegment.Part(bytes: claim.bytes, encryption: encryption)
            // A claim for the same bytes as the one before agrees with it.
            if parts.last?.bytes != part.bytes || parts.isEmpty { parts.append(part) }
        }
        try addFrames(firm, ordered, to: &parts)
        return parts.isEmpty ? nil : HlsSegment(parts)
    }

    private func addFrames(
        _ firm: [HlsClaim], _ ordered: [HlsClaim], to parts: inout [HlsSegment.Part]
    ) throws(ViewError) {
        for claim in firm {
            guard let encryption = claim.frames else { continue }
            if let other = ordered.first {
                guard parts.contains(where: { $0.encryption.key.means(encryption.key) }) else {
                    throw conflict(other, claim)
                }
            } else if parts.isEmpty {
                parts = [HlsSegment.Part(bytes: nil, encryption: encryption)]
            } else if !parts[0].encryption.key.means(encryption.key),
                let first = firm.first(where: { $0.frames != nil })
            {
                throw conflict(first, claim)
            }
        }
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

    private func checkNeighbours(_ one: HlsClaim, _ other: HlsClaim) throws(ViewError) {
        guard range(one).overlaps(range(other)) || range(one) == range(other) else { return }
        if one.agrees(with: other), range(one) == range(other) || one.isPlain { return }
        throw conflict(one, other)
    }

    /// A plain range can cover several others if they are plain too. Checks each claim against the plain range before it
    /// that ends last.
    private func checkPlain(_ ordered: [HlsClaim]) throws(ViewError) {
        var farthest: HlsClaim?
        for claim in ordered {
            if let plain = farthest, !claim.isPlain, range(plain).overlaps(range(claim)) {
                throw conflict(plain, claim)
            }
            guard claim.isPlain else { continue }
            if farthest.map({ range($0).upperBound < range(claim).upperBound }) ?? true { farthest = claim }
        }
    }

    private func conflict(_ one: HlsClaim, _ other: HlsClaim) -> ViewError {
        let lines = [one, other].map { HlsProblem.location($0.playlist.path, line: $0.line) }
        return .malformed("two playlist lines contradict each other on its encryption: \(lines[0]) and \(lines[1])")
    }
}
