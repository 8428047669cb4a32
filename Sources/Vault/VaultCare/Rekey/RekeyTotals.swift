/// The work that a rekey has done so far.
package struct RekeyTotals: Sendable, Equatable {
    package var directories = 0
    package var files = 0
    package var links = 0
    /// Bytes of plaintext in the files.
    package var bytes: UInt64 = 0
    /// Objects that stay under the old key.
    package var problems = 0
    /// Those of them that this user may not read or change.
    package var denied = 0
    /// Entries that do not belong to the vault. They stay as they are.
    package var foreign = 0
    /// Objects with further names outside of the vault, which still lead to the old objects.
    package var elsewhere = 0

    package init() {}
}

/// The work that a rekey has to do.
package struct RekeySurvey: Sendable, Equatable {
    package var files = 0
    package var bytes: UInt64 = 0
}

/// The end of a rekey.
package struct RekeyOutcome: Sendable, Equatable {
    package let totals: RekeyTotals
    /// Nothing is left under the old key, and the vault has forgotten it.
    package let isFinished: Bool
    /// The rekey was asked to stop.
    package let isStopped: Bool
}
