package import SystemPackage

/// The reason why the control socket could not be used. The description is a line for people.
package enum ControlError: Error, Equatable, Sendable, CustomStringConvertible {
    /// A system call failed, with a phrase such as "cannot open" and the path.
    case system(Errno, String, FilePath)
    /// The run-time directory belongs to others or is open to them. The string is the reason.
    case unsafeDirectory(FilePath, String)
    /// The mountpoint has no daemon that answers.
    case noDaemon
    /// The daemon hung up, or its action is unknown. The string is the reason.
    case noAnswer(String)
    /// The daemon did not answer in time.
    case timedOut
    /// The other side sent something other than a line of the protocol.
    case notUnderstood(String)

    package var description: String {
        switch self {
        case .system(let errno, let operation, let path): "\(operation) \(path.string): \(errno)"
        case .unsafeDirectory(let path, let reason): "run-time directory \(path.string) is not safe: \(reason)"
        case .noDaemon:
            "no vaultfs daemon answers: try the XDG_RUNTIME_DIR that it was mounted with, or unmount it"
        case .noAnswer(let reason): "the vaultfs daemon does not answer: \(reason)"
        case .timedOut: "the vaultfs daemon does not answer: timed out"
        case .notUnderstood(let what): "the vaultfs daemon's answer is not understood: \(what)"
        }
    }
}
