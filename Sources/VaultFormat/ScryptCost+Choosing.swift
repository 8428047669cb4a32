internal import VaultCrypto

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
        _ = try cost.parameters(salt: salt).keyEncryptionKey(from: secret)
        return .now - start
    }
}
