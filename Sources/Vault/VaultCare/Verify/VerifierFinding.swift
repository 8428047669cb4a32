package struct VerifierFinding: Sendable, Equatable {
    package enum Kind: String, Sendable, CaseIterable, Codable {
        /// Something does not authenticate, or violates the format.
        case damaged
        /// Something required is missing: a directory's record, a long name's sidecar.
        case missing
        /// The name of an entry or attribute does not authenticate here, so it is not shown.
        case hiddenName
        /// The store returned an error.
        case unreadable
        /// A note: the length of a file is not authenticated, as after a crash.
        case unsealed
        /// A note: the log has changes of the file. The next mount puts them in place.
        case logged
        /// A note: after an unclean end, a sealed file exceeds its length, or another has invalid records past its
        /// durable length. The next mount ends it there.
        case tornTail
        /// A note: something unused, left by an interrupted operation.
        case leftover
        /// A note: a file without a header, or a directory without a record, after an unclean end. A mount completes it
        /// as an empty one.
        case incomplete
        /// A note: another program's file or directory, not spelled like an encrypted name. The vault ignores it.
        case foreign
        /// A note: a sync client's second version of a file or directory, kept after a conflict.
        case conflict
        /// A note: the daemon changed the object between all checks.
        case busy

        /// True for everything but damage.
        package var isNote: Bool { ![.damaged, .missing, .hiddenName, .unreadable].contains(self) }

        /// True for a note about the work of a running daemon.
        var isTransient: Bool { isNote && self != .foreign && self != .conflict }
    }

    package let kind: Kind
    /// The path from the vault's root: plaintext names if they decrypt, otherwise backing entries. Empty for the root.
    package let path: [UInt8]
    /// The backing path from the vault's root.
    package let backingPath: [UInt8]
    /// The extended attribute, if any: its plaintext name if that decrypts, otherwise the stored one.
    package let attribute: [UInt8]?
    /// Offset of the first byte of plaintext concerned.
    package let plaintextOffset: UInt64?
    /// Number of bytes of plaintext concerned, if known.
    package let plaintextCount: UInt64?
    /// One line about the problem, without names.
    package let message: String
    /// The repair, or nil if every repair would lose something.
    package let remedy: Remedy?
}

/// The work done by a `Verifier` so far.
package struct VerifierTotals: Sendable, Equatable, Codable {
    package var directories = 0
    package var files = 0
    package var links = 0
    /// Fifos, sockets and devices. Only their names are encrypted.
    package var specialFiles = 0
    /// `user.*` extended attributes.
    package var attributes = 0
    /// Bytes of plaintext in the chunks below.
    package var bytes: UInt64 = 0
    /// Chunks checked, including holes.
    package var chunks: UInt64 = 0
    package var damage = 0
    /// Number of other findings, which are notes.
    package var notes = 0

    package init() {}
}
