internal import VaultCrypto

extension ScryptCost {
    /// The cost of a slot that takes the place of one of cost `old` (nil: of one that cannot be guessed). `asked` is what a
    /// person wants, the standard where that is nil; it is taken where it is no weaker than `old`, or may be.
    package static func replacing(_ old: ScryptCost?, asked: ScryptCost?, allowingWeaker: Bool) -> ScryptCost {
        let new = asked ?? .standard
        guard let old, !new.isAtLeast(old) else { return new }
        return allowingWeaker && asked != nil ? new : old
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
