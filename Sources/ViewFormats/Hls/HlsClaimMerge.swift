/// Makes one answer of what several playlists say of a file.
struct HlsClaimMerge {
    private let claims: [HlsClaim]
    private let size: UInt64

    /// - Parameter size: of the file: a byte range that is all of it is the same as none.
    init(_ claims: [HlsClaim], size: UInt64) {
        self.size = size
        self.claims = claims.map {
            var claim = $0
            if claim.bytes == 0..<size { claim.bytes = nil }
            return claim
        }
    }

    /// Equal claims are one. Nil: nothing is encrypted.
    ///
    /// - Throws: `.malformed` where two contradict each other, or all are of playlists that cannot be shown decrypted.
    func segment() throws(ViewError) -> HlsSegment? {
        let firm = claims.filter { if case .failed = $0.use { false } else { true } }
        guard !firm.isEmpty else { throw claims.compactMap(\.playlist.error).first ?? .malformed("no playlist") }
        var ordered = firm.filter { $0.frames == nil }
        ordered.sort(by: isBefore)
        for pair in zip(ordered, ordered.dropFirst()) { try check(pair.0, pair.1) }
        // A plain range may reach over several, as long as they are plain.
        try checkPlain(ordered)
        var parts: [HlsSegment.Part] = []
        for claim in ordered {
            guard case .encrypted(let encryption) = claim.use else { continue }
            let part = HlsSegment.Part(bytes: claim.bytes, encryption: encryption)
            // What agrees with the one before is the same.
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

    /// Two neighbours.
    private func check(_ one: HlsClaim, _ other: HlsClaim) throws(ViewError) {
        guard range(one).overlaps(range(other)) || range(one) == range(other) else { return }
        if one.agrees(with: other), range(one) == range(other) || one.isPlain { return }
        throw conflict(one, other)
    }

    /// Against the plain range before that reaches farthest.
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
        let reason = "how it is encrypted is said in two ways, which cannot both be right"
        return .malformed("\(reason): \(one.place) and \(other.place)")
    }
}

extension HlsClaim {
    fileprivate var isPlain: Bool {
        if case .plain = use { true } else { false }
    }

    fileprivate var frames: HlsEncryption? {
        if case .frames(let encryption) = use { encryption } else { nil }
    }
}
