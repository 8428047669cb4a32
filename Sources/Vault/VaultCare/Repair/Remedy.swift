/// The repair of a finding. Its raw value is its name in reports.
package enum Remedy: String, Sendable, CaseIterable, Codable {
    /// Puts the changes in the log in place.
    case recover
    /// Moves an object that has the log's name but is no log.
    case clearLog
    case cutTail, cutBack
    /// Cuts off the few bytes after the last record, which cannot hold plaintext.
    case cutRest
    case seal, sealRest
    /// Removes a leftover of an interrupted operation.
    case remove
    /// Completes a file without a header, or a directory without a record, after an unclean end.
    case complete
    /// Moves a file, link or directory whose content authenticates.
    case move
    case empty, renewRoot

    /// A line for people.
    package var explanation: String {
        switch self {
        case .recover: "put the changes that vaultfs.log holds in place"
        case .clearLog: "move what has the log's name to lost+found, so that there can be a log"
        case .cutTail: "cut off what did not reach the disk whole, and was never fsynced"
        case .cutBack:
            "cut it back to its authenticated length; intact data past that goes to lost+found"
        case .cutRest: "cut off the bytes that hold no data"
        case .seal: "authenticate its length"
        case .sealRest: "authenticate the length of what is left, so that it can be read: what was cut off is lost"
        case .remove: "remove it"
        case .complete: "complete it as an empty one"
        case .move: "move it to lost+found: its name is lost"
        case .empty: "move what it holds to lost+found, for its names are lost, and remove it when it is empty"
        case .renewRoot: "make a new record, and move what the root holds to lost+found, for its names are lost"
        }
    }
}
