/// The repair of a finding. Its raw value is its name in reports.
package enum Remedy: String, Sendable, CaseIterable, Codable {
    case recover
    /// Frees an unused slot of the journal.
    case free
    /// For a slot whose record verifies nowhere.
    case keepSlot
    /// For an object under the journal's name that is no file. A file with several names is replaced by a copy.
    case clearJournal
    case cutTail, cutBack
    /// For the few bytes behind the last record, which cannot hold plaintext.
    case cutRest
    case seal, sealRest
    /// For a leftover of an interrupted operation.
    case remove
    /// For a file without a header, or a directory without a record, after an unclean end.
    case complete
    /// For a file, link or directory whose content authenticates.
    case move
    case empty, renewRoot

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
