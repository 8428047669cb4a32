internal import Control

/// Where a daemon listens: enough to connect from any thread, again and again.
struct DaemonSocket: Sendable {
    /// The user whose directory it lies in, and so whose daemon it is.
    let userID: UInt32
    let directory: RuntimeDirectory
    let name: String

    /// - Throws: `noDaemon`.
    func connect() throws(ControlError) -> ControlClient {
        guard let client = ControlClient.connect(name: name, directory: directory) else { throw .noDaemon }
        return client
    }

    /// Asks what it serves.
    /// - Throws: `noDaemon`, `noAnswer`, `notUnderstood`.
    func status() throws(ControlError) -> MountStatus {
        switch try connect().send(.status) {
        case .status(let status): return status
        case .error(let failure): throw .notUnderstood(Console.shown(failure.message))
        case .stats, .locked, .unlocked, .subscribed: throw .notUnderstood("no status")
        }
    }
}
