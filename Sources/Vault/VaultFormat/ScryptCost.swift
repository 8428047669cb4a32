/// The cost of one scrypt derivation (RFC 7914), within the format's bounds.
package struct ScryptCost: Sendable, Equatable {
    package static let logNRange = 10...20
    package static let rRange = 1...32
    package static let pRange = 1...16
    /// Maximum work of a derivation: N = 2^20, r = 8, p = 1, the dearest slot that vaultfs makes. It takes 1 GiB of
    /// memory and some four seconds, so an edited file cannot make a slot take minutes.
    package static let maximumWork = 8 << 20

    package let logN, r, p: Int

    /// The default cost of a new passphrase slot: 128 MiB, about half a second.
    package static let standard = ScryptCost(unchecked: 17, r: 8, p: 1)

    /// Throws `invalidValue` for parameters outside the bounds.
    package init(logN: Int, r: Int, p: Int) throws(FormatError) {
        try require(
            Self.logNRange.contains(logN) && Self.rRange.contains(r) && Self.pRange.contains(p), .invalidValue,
            "scrypt parameters logN \(logN), r \(r), p \(p) are outside the bounds: logN 10 to 20, r 1 to 32, p 1 to 16"
        )
        self.init(unchecked: logN, r: r, p: p)
        try require(
            work <= Self.maximumWork, .invalidValue,
            "scrypt parameters logN \(logN), r \(r), p \(p) take more work than logN 20, r 8, p 1")
    }

    /// Bytes of memory for a derivation, and so for each guess.
    package var memory: Int { 128 * r << logN }

    /// The work of a derivation, at most 2²³: N·r·p. A block of fewer than 8 units takes as long as one of 8, because
    /// most of the time goes to waiting for memory.
    package var work: Int { max(r, 8) * p << logN }

    /// Returns true if a guess takes at least the memory and the work of one at `other`.
    package func isAtLeast(_ other: ScryptCost) -> Bool {
        memory >= other.memory && memory * p >= other.memory * other.p
    }

    init(unchecked logN: Int, r: Int, p: Int) {
        self.logN = logN
        self.r = r
        self.p = p
    }

    /// Returns the default cost of a slot beside others: the standard one, or the dearest of `others`.
    package static func beside(_ others: [ScryptCost]) -> ScryptCost {
        others.reduce(.standard) { $0.isAtLeast($1) ? $0 : $1 }
    }
}
