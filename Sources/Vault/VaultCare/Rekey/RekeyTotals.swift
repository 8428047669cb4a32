/// The work done by a rekey so far.
package struct RekeyTotals: Sendable, Equatable {
    package var directories = 0
    package var files = 0
    package var links = 0
    /// Bytes of plaintext in the files.
    package var bytes: UInt64 = 0
    /// The files to be replaced and their plaintext, as found by the first walk.
    package var expectedFiles = 0
    package var expectedBytes: UInt64 = 0
    /// Objects left under the old key.
    package var problems = 0
    /// The part of `problems` that this user may not read or change.
    package var denied = 0
    /// Entries foreign to the vault. The rekey leaves them alone.
    package var foreign = 0
    /// Objects with other names outside the vault, which still lead to the old objects.
    package var elsewhere = 0

    package init() {}
}

/// The result of a rekey.
package struct RekeyOutcome: Sendable, Equatable {
    package let totals: RekeyTotals
    /// True if everything has left the old key, and the vault has forgotten it.
    package let isFinished: Bool
    package let isStopped: Bool
}
