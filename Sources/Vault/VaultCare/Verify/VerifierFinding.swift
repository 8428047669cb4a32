package struct VerifierFinding: Sendable, Equatable {
    package enum Kind: String, Sendable, CaseIterable, Codable {
        /// Something does not authenticate, or violates the format.
        case damaged
        /// Something required is missing: a directory's record, a long name's sidecar.
        case missing
        /// The name of an entry or attribute does not authenticate here. It is not shown.
        case hiddenName
        /// The store returned an error.
        case unreadable
        /// A note: the length of a file is not authenticated, as after a crash.
        case unsealed
        /// A note: the log holds changes of the file. The next mount puts them in place.
        case logged
        /// A note: after an unclean end, a sealed file is longer than its length, or another has records past its durable
        /// length that do not verify. The next mount ends it there.
        case tornTail
        /// A note: something unused that an interrupted operation has left.
        case leftover
        /// A note: a file without a header, or a directory without a record, after an unclean end. A mount completes it
        /// as an empty one.
        case incomplete
        /// A note: another program's file or directory, whose name no encrypted one has. The vault ignores it.
        case foreign
        /// A note: the version of a file or directory that a sync client kept in a conflict.
        case conflict
        /// A note: the daemon that has the vault changed it between all looks.
        case busy

        /// True if the vault is not damaged.
        package var isNote: Bool {
            switch self {
            case .damaged, .missing, .hiddenName, .unreadable: false
            case .unsealed, .logged, .tornTail, .leftover, .incomplete, .foreign, .conflict, .busy:
                true
            }
        }

        /// True for a note about the work of a daemon that has the vault.
        var isTransient: Bool { isNote && self != .foreign && self != .conflict }
    }

    package let kind: Kind
    /// The path in the vault from its root: plaintext names if they decrypt, otherwise backing entries. Empty for the root.
    package let path: [UInt8]
    /// The backing path from the vault's root.
    package let backingPath: [UInt8]
    /// The extended attribute concerned: its plaintext name if that decrypts, otherwise the stored one.
    package let attribute: [UInt8]?
    /// The first byte of plaintext concerned.
    package let plaintextOffset: UInt64?
    /// Number of bytes of plaintext concerned, if known.
    package let plaintextCount: UInt64?
    /// One line about the problem. It holds no name.
    package let message: String
    /// The repair, or nil if any would lose something.
    package let remedy: Remedy?
}

/// The work that a `Verifier` has done so far.
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
    /// Findings that are damage.
    package var damage = 0
    /// Findings that are only notes.
    package var notes = 0

    package init() {}
}
