internal import VaultCrypto

extension ScryptCost {
    /// The cost of a slot that takes the place of one of cost `old`, the standard where nobody `asked` for one. What is asked
    /// for is taken where it is no weaker than `old`, or may be. Where `old` is nil, of a slot that cannot be guessed, it is
    /// measured by the `others` of the vault: guessing would begin with the cheapest.
    package static func replacing(
        _ old: ScryptCost?, beside others: [ScryptCost], asked: ScryptCost?, allowingWeaker: Bool
    ) -> ScryptCost {
        if let asked, allowingWeaker || (old.map { [$0] } ?? others).allSatisfy(asked.isAtLeast) { return asked }
        guard let old else { return .beside(others) }
        return asked == nil ? .beside([old]) : old
    }

    /// The cost of a slot that nobody asked one for: the standard, or that of the passphrase that is costliest to guess.
    package static func beside(_ others: [ScryptCost]) -> ScryptCost {
        others.reduce(.standard) { $1.isAtLeast($0) ? $1 : $0 }
    }

    /// The largest cost of a new slot whose derivation takes at most `limit` on this machine, and how long that is; nil where
    /// the least of them takes longer. Takes less than twice as long as `limit`.
    /// - Parameter measure: how long a derivation takes.
    package static func largest(
        within limit: Duration, measure: (ScryptCost) throws(FormatError) -> Duration = derivationTime
    ) throws(FormatError) -> (cost: ScryptCost, time: Duration)? {
        var largest: (cost: ScryptCost, time: Duration)?
        for logN in logNRange {
            // With the memory that the next one takes it is over the format's bound.
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
