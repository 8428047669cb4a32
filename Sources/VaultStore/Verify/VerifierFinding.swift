internal import FileSystem
internal import LinuxSystem

/// One thing that `Verifier` found in a vault.
package struct VerifierFinding: Sendable, Equatable {
    /// What kind of thing it is.
    package enum Kind: String, Sendable, CaseIterable, Codable {
        /// Something is there that does not authenticate or is not laid out as the format says.
        case damaged
        /// Something that has to be there is not: a directory's record, a long name's sidecar.
        case missing
        /// A name, of an entry or an attribute, that does not authenticate here: it is not shown.
        case hiddenName
        /// The store would not let it be read.
        case unreadable
        /// The last record of an unsealed file does not verify: a crash can leave that.
        case unprovenTail
        /// Only a note: a file whose length nothing vouches for, as after a crash.
        case unsealed
        /// Only a note: a record was being replaced when the daemon died; the journal holds it, and opening the file
        /// puts it in place.
        case journaled
        /// Only a note: something that an operation cut short has left, and nothing needs.
        case leftover
        /// Only a note: a file without a header, or a directory without a record, after an unclean end. A mount completes it as
        /// an empty one.
        case incomplete
        /// Only a note: the daemon that has the vault changed it whenever it was looked at.
        case busy

        /// True for what leaves the vault whole.
        package var isNote: Bool {
            switch self {
            case .damaged, .missing, .hiddenName, .unreadable, .unprovenTail: false
            case .unsealed, .journaled, .leftover, .incomplete, .busy: true
            }
        }
    }

    package let kind: Kind
    /// Where in the vault, from its root: plaintext names where they decrypt, else the backing entry's; empty for the
    /// root.
    package let path: [UInt8]
    /// Where in the vault directory, from its root.
    package let backingPath: [UInt8]
    /// The extended attribute it is about: the plaintext name where that decrypts, else the backing one.
    package let attribute: [UInt8]?
    /// The first byte of plaintext concerned.
    package let plaintextOffset: UInt64?
    /// How many bytes of plaintext are concerned, where that is known.
    package let plaintextCount: UInt64?
    /// One line: what is wrong. It holds no name.
    package let message: String
    /// What can be done about it; nil where nothing can that would not lose something.
    package let remedy: Remedy?
    /// The slot of the journal that it is about, where the remedy has to know.
    let slot: Int?
}

/// What a `Verifier` has looked at so far.
package struct VerifierTotals: Sendable, Equatable, Codable {
    package var directories = 0
    package var files = 0
    package var links = 0
    /// Fifos, sockets and devices, in which nothing is encrypted but the name.
    package var specialFiles = 0
    /// `user.*` extended attributes.
    package var attributes = 0
    /// Bytes of plaintext in the chunks below.
    package var bytes: UInt64 = 0
    /// Chunks looked at, holes among them.
    package var chunks: UInt64 = 0
    /// Findings that are damage.
    package var damage = 0
    /// Findings that are only notes.
    package var notes = 0

    package init() {}
}
