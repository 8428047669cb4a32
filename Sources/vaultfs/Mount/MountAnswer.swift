internal import Control
internal import Glibc
internal import LinuxSystem
internal import SystemPackage
internal import VaultStore

/// What became of a request to one mount.
struct MountAnswer: Sendable {
    enum Outcome: Sendable {
        case answered(ControlResponse)
        /// The daemon has died: the mount holds neither keys nor plaintext.
        case dead
        /// Something is mounted, and nobody answers; why.
        case unreachable(String)
    }

    /// As a message may show it.
    let mountpoint: String
    /// Nil where none was found.
    let socket: DaemonSocket?
    let outcome: Outcome
}

extension MountAnswer {
    /// Asks the mount at a path that a person typed.
    static func ask(_ path: FilePath, _ request: ControlRequest) throws(CommandFailure) -> MountAnswer {
        let mount = try DaemonAccess.mount(at: path)
        let name = mount.path.shown
        guard let socket = DaemonAccess.socket(of: mount) else {
            let outcome: Outcome =
                MountProbe.isDead(mount.entry) ? .dead : .unreachable("\(ControlError.noDaemon)")
            return MountAnswer(mountpoint: name, socket: nil, outcome: outcome)
        }
        return MountAnswer(mountpoint: name, socket: socket, outcome: send(request, to: socket))
    }

    /// Asks this user's only mount.
    static func askOnly(_ request: ControlRequest) throws(CommandFailure) -> MountAnswer {
        let (mountpoint, socket) = try DaemonAccess.onlyMount(option: "--all")
        return MountAnswer(mountpoint: mountpoint, socket: socket, outcome: send(request, to: socket))
    }

    /// Asks all of this user's mounts; as root, everybody's.
    static func askAll(_ request: ControlRequest) throws(CommandFailure) -> [MountAnswer] {
        let table = try MountTable.read()
        let mounts = Dictionary(vaults(table).map { (key($0), $0.mountpoint) }) { $1 }
        let found = DaemonSearch.ask(DaemonSearch.places(table)) { socket in
            ask(socket, request, mountpoint: mounts["\(socket.userID) \(socket.name)"])
        }.compactMap { $0 }
        return (found + (try unanswered(beside: found))).sorted { $0.mountpoint < $1.mountpoint }
    }

    /// The mounts that concern this user.
    private static func vaults(_ table: MountTable) -> [MountTable.Entry] {
        let isRoot = geteuid() == 0
        return table.entries.filter { $0.isVault && (isRoot || $0.userID == geteuid()) }
    }

    /// What a mount and its daemon's socket have in common; no user may speak for another's mount.
    private static func key(_ entry: MountTable.Entry) -> String {
        "\(entry.userID ?? 0) \(RuntimeDirectory.socketName(mountpoint: entry.mountpoint))"
    }

    /// Again, to the same daemon.
    func asking(_ request: ControlRequest) -> MountAnswer {
        guard let socket else { return self }
        return MountAnswer(mountpoint: mountpoint, socket: socket, outcome: Self.send(request, to: socket))
    }

    /// Nil for a socket that a dead daemon left: whether something is mounted there is for the mount table to say.
    /// - Parameter mountpoint: what the mount table says it is for.
    private static func ask(
        _ socket: DaemonSocket, _ request: ControlRequest, mountpoint: [UInt8]?
    ) -> MountAnswer? {
        do throws(ControlError) {
            let name = Console.shown(try socket.status().mountpoint)
            return MountAnswer(mountpoint: name, socket: socket, outcome: send(request, to: socket))
        } catch {
            if error == .noDaemon { return nil }
            let name =
                mountpoint.map { FilePath(bytes: $0).shown }
                ?? "the mount of \(socket.directory.path.appending(socket.name).shown)"
            return MountAnswer(mountpoint: name, socket: socket, outcome: .unreachable("\(error)"))
        }
    }

    private static func send(_ request: ControlRequest, to socket: DaemonSocket) -> Outcome {
        do throws(ControlError) {
            return .answered(try socket.connect().send(request))
        } catch {
            return .unreachable("\(error)")
        }
    }

    /// The mounts in the table that no daemon has spoken for.
    private static func unanswered(beside found: [MountAnswer]) throws(CommandFailure) -> [MountAnswer] {
        let answered = Set(found.compactMap { answer in answer.socket.map { "\($0.userID) \($0.name)" } })
        let silent = vaults(try MountTable.read()).filter { !answered.contains(key($0)) }
        let outcomes = ParallelWork.map(silent) { entry -> Outcome in
            MountProbe.isDead(entry) ? .dead : .unreachable("\(ControlError.noDaemon)")
        }
        // What has been unmounted meanwhile needs no locking.
        let table = try MountTable.read()
        return zip(silent, outcomes).compactMap { entry, outcome in
            guard table.entry(at: entry.mountpoint)?.isVault == true else { return nil }
            return MountAnswer(mountpoint: FilePath(bytes: entry.mountpoint).shown, socket: nil, outcome: outcome)
        }
    }
}
