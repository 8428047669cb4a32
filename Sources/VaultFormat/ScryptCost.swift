/// The cost of one scrypt derivation (RFC 7914), within the format's bounds.
package struct ScryptCost: Sendable, Equatable {
    package static let logNRange = 10...22
    package static let rRange = 1...32
    package static let pRange = 1...16
    /// The most memory a derivation may take, in bytes, counted as 128·r·2^logN.
    package static let maximumMemory = 1 << 30

    package let logN, r, p: Int

    /// The default cost of a new passphrase slot: 128 MiB, about half a second.
    package static let standard = ScryptCost(unchecked: 17, r: 8, p: 1)

    /// Throws `invalidValue` outside the bounds.
    package init(logN: Int, r: Int, p: Int) throws(FormatError) {
        guard Self.logNRange.contains(logN), Self.rRange.contains(r), Self.pRange.contains(p) else {
            throw FormatError(
                .invalidValue,
                """
                scrypt parameters logN \(logN), r \(r), p \(p) are outside the bounds: logN 10 to 22, r 1 to 32, p 1 to 16
                """)
        }
        self.init(unchecked: logN, r: r, p: p)
        try require(
            memory <= Self.maximumMemory, .invalidValue,
            "scrypt parameters logN \(logN), r \(r) take \(memory >> 20) MiB of memory, over 1024")
    }

    /// Bytes of memory that a derivation takes, and with it a guess.
    package var memory: Int { 128 * r << logN }

    /// The work of a derivation: N·r·p, at most 2²⁷.
    package var work: Int { r * p << logN }

    /// True if a guess takes at least as much memory and at least as much work as at `other`.
    package func isAtLeast(_ other: ScryptCost) -> Bool {
        memory >= other.memory && memory * p >= other.memory * other.p
    }

    init(unchecked logN: Int, r: Int, p: Int) {
        self.logN = logN
        self.r = r
        self.p = p
    }
}

extension ScryptCost {
    /// The cost of a slot that replaces one of cost `old`. Without `asked` it is the standard, but not weaker than
    /// `old`. A weaker `asked` counts only if `allowingWeaker`. If `old` is nil (a slot that cannot be guessed),
    /// `asked` is compared with `others`, the vault's other slots, because guessing would begin with the cheapest.
    package static func replacing(
        _ old: ScryptCost?, beside others: [ScryptCost], asked: ScryptCost?, allowingWeaker: Bool
    ) -> ScryptCost {
        if let asked, allowingWeaker || (old.map { [$0] } ?? others).allSatisfy(asked.isAtLeast) { return asked }
        guard let old else { return .beside(others) }
        return asked == nil ? .beside([old]) : old
    }

    /// The default cost of a slot: the standard, or that of the passphrase that is costliest to guess.
    package static func beside(_ others: [ScryptCost]) -> ScryptCost {
        others.reduce(.standard) { $1.isAtLeast($0) ? $1 : $0 }
    }

    /// The largest cost of a new slot whose derivation takes at most `limit` on this machine, and its time. Nil if even
    /// the smallest takes longer. Runs for less than twice `limit`.
    /// - Parameter measure: returns the time of one derivation.
    package static func largest(
        within limit: Duration, measure: (ScryptCost) throws(FormatError) -> Duration = derivationTime
    ) throws(FormatError) -> (cost: ScryptCost, time: Duration)? {
        var largest: (cost: ScryptCost, time: Duration)?
        for logN in logNRange {
            // The next cost needs more memory than the format allows.
            guard let cost = try? ScryptCost(logN: logN, r: standard.r, p: standard.p) else { break }
            let time = try measure(cost)
            guard time <= limit else { break }
            largest = (cost, time)
            // The next one does twice the work.
            if time * 2 > limit { break }
        }
        return largest
    }

    /// How long one derivation takes, now.
    package static func derivationTime(_ cost: ScryptCost) throws(FormatError) -> Duration {
        let salt = [UInt8](repeating: 0, count: KdfParameters.saltSize)
        let secret = try SlotSecret.passphrase(Array("measured".utf8))
        let start = ContinuousClock.now
        _ = try KdfParameters.scrypt(cost, salt: salt).keyEncryptionKey(from: secret)
        return .now - start
    }
}
