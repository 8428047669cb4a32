/// The repair of a finding. Its raw value is its name in reports.
package enum Remedy: String, Sendable, CaseIterable, Codable {
    /// Puts the record that the journal holds in place, then frees its slot.
    case recover
    /// Frees an unused slot of the journal.
    case free
    /// Keeps a slot's record that does not verify anywhere in a file of `lost+found`, then frees the slot.
    case keepSlot
    /// Moves an object under the journal's name that is no file to `lost+found`. Replaces a file with several names by a copy.
    case clearJournal
    /// Cuts off a record that was being appended when the daemon died, and was never acknowledged.
    case cutTail
    /// Cuts a file back to the length of its sealed header. Keeps the chunks behind it that verify in a file of
    /// `lost+found`.
    case cutBack
    /// Cuts off the few bytes behind the last record, which cannot hold plaintext.
    case cutRest
    /// Seals a file that a crash has left unsealed.
    case seal
    /// Seals the rest of a sealed file that was cut, so that it can be read again.
    case sealRest
    /// Removes a leftover of an interrupted operation.
    case remove
    /// Completes a file without a header, or a directory without a record, after an unclean end, as an empty one.
    case complete
    /// Moves a file, link or directory to `lost+found`. Its name is lost, and its content authenticates.
    case move
    /// Moves the content of a directory whose record is lost to `lost+found`. Removes the directory if it is empty.
    case empty
    /// Makes a new record for the vault's root. Moves the content of the root, whose names are lost, to `lost+found`.
    case renewRoot

    /// One line for people.
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
