/// What a rekey has done so far.
package struct RekeyTotals: Sendable, Equatable, Codable {
    package var directories = 0
    package var files = 0
    package var links = 0
    /// Bytes of plaintext in the files.
    package var bytes: UInt64 = 0
    /// Objects that had to be left under the old key.
    package var problems = 0
    /// Entries that are not the vault's, and were left as they are.
    package var foreign = 0
    /// Objects that have names outside of the vault too, which lead to the old ones still.
    package var elsewhere = 0

    package init() {}
}

/// How much there is for a rekey to do.
package struct RekeySurvey: Sendable, Equatable {
    package var files = 0
    package var bytes: UInt64 = 0
}

/// How a rekey ended.
package struct RekeyOutcome: Sendable, Equatable {
    package let totals: RekeyTotals
    /// Nothing is left of the old key, and the vault has forgotten it.
    package let isFinished: Bool
    /// It was asked to stop.
    package let isStopped: Bool
}
