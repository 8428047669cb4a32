internal import Control
internal import Glibc
internal import LinuxSystem
internal import SystemPackage

/// The sockets of the mounts that a person means.
extension DaemonAccess {
    /// The socket of a mount's daemon; nil where nobody listens.
    static func socket(of mount: (path: FilePath, entry: MountTable.Entry)) -> DaemonSocket? {
        let name = RuntimeDirectory.socketName(mountpoint: mount.path.bytes)
        var places = DaemonSearch.ownPlaces()
        // Root may ask another user's daemon, wherever it is.
        if geteuid() == 0, let user = mount.entry.userID, user != 0, let table = try? MountTable.read() {
            places = DaemonSearch.allPlaces(table).filter { $0.userID == user } + places
        }
        return DaemonSearch.ask(places) { socket -> DaemonSocket? in
            guard socket.name == name, (try? socket.connect()) != nil else { return nil }
            return socket
        }.compactMap { $0 }.first
    }

    /// This user's only mount.
    /// - Parameter option: what to use where there are several; nil where nothing else does.
    /// - Throws: codes `mountpoint`, where there is none, and `usage`, where there are several.
    static func onlyMount(option: String?) throws(CommandFailure) -> (mountpoint: String, socket: DaemonSocket) {
        let found = DaemonSearch.ask(DaemonSearch.ownPlaces()) { socket -> (String, DaemonSocket)? in
            (try? socket.status()).map { (Console.shown($0.mountpoint), socket) }
        }.compactMap { $0 }.sorted { $0.0 < $1.0 }
        guard let first = found.first else { throw CommandFailure(.mountpoint, "none of your vaults is mounted") }
        guard found.count == 1 else {
            let names = found.map(\.0).joined(separator: ", ")
            throw CommandFailure(
                .usage, "you have several mounts (\(names)): name one" + (option.map { ", or use \($0)" } ?? ""))
        }
        return first
    }
}
