/// What `Repairer` does about a finding, and the name of it in reports.
package enum Remedy: String, Sendable, CaseIterable, Codable {
    /// Put the record that the journal holds in place, then free its slot.
    case recover
    /// Free a slot of the journal that nothing needs.
    case free
    /// Keep what a slot of the journal holds, which verifies nowhere, in a file of `lost+found`, then free the slot.
    case keepSlot
    /// Move to `lost+found` what has the journal's name and is no file; what has other names too is replaced by a copy.
    case clearJournal
    /// Cut off a record that was being appended when the daemon died, and was never acknowledged.
    case cutTail
    /// Cut a file that is longer than its sealed header says back to that length; what verifies behind it is kept in a
    /// file of `lost+found`.
    case cutBack
    /// Cut off the few bytes behind the last record, in which no plaintext fits.
    case cutRest
    /// Vouch for the length of a file that a crash has left unsealed.
    case seal
    /// Vouch for the length of what is left of a sealed file that was cut, so that it can be read again.
    case sealRest
    /// Remove what an operation cut short has left.
    case remove
    /// Complete a file without a header, or a directory without a record, that an unclean end has left, as an empty
    /// one.
    case complete
    /// Move what has no name any more into `lost+found`: a file, a link or a directory that authenticates itself.
    case move
    /// Move what a directory holds, whose record is lost, into `lost+found`; the directory goes when it is empty.
    case empty
    /// Make a new record for the vault's root; what the root holds has lost its names and goes into `lost+found`.
    case renewRoot

    /// One line for people: what will be done.
    package var explanation: String {
        switch self {
        case .recover: "put the record that the journal holds in place"
        case .free: "free the journal's slot"
        case .keepSlot: "keep what the journal's slot holds in lost+found, and free the slot"
        case .clearJournal: "move what has the journal's name to lost+found, so that there can be a journal"
        case .cutTail: "cut off the last record, which was never acknowledged"
        case .cutBack:
            "cut it back to the length that its header vouches for; what verifies behind it goes to lost+found"
        case .cutRest: "cut off the bytes that count for nothing"
        case .seal: "seal its length"
        case .sealRest: "seal the length of what is left, so that it can be read: what was cut off is lost"
        case .remove: "remove it"
        case .complete: "complete it as an empty one"
        case .move: "move it to lost+found: its name is lost"
        case .empty: "move what it holds to lost+found, for its names are lost, and remove it when it is empty"
        case .renewRoot: "make a new record, and move what the root holds to lost+found, for its names are lost"
        }
    }
}
