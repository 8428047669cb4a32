internal import ArgumentParser
internal import Glibc
internal import SystemPackage
internal import VaultControl
internal import VaultStore

/// `[MOUNTPOINT | --all]`: whose daemons a command asks.
struct MountChoice: ParsableArguments {
    @Argument(help: "Where a vault is mounted; may be left out where you have only one mount.")
    var mountpoint: PathArgument?

    @Flag(help: "All your mounts; as root, every user's.")
    var all = false

    func validate() throws {
        guard !(all && mountpoint != nil) else {
            throw ValidationError("only one of MOUNTPOINT, --all can be given")
        }
    }

    /// Sends the request to every mount chosen, to all at once, and returns when all have answered.
    /// - Throws: codes `mountpoint`, `usage` where it is not clear which mount is meant.
    func ask(_ request: ControlRequest) throws(CommandFailure) -> [MountAnswer] {
        if let mountpoint { return [try MountAnswer.ask(mountpoint.path, request)] }
        guard all else { return [try MountAnswer.askOnly(request)] }
        return try MountAnswer.askAll(request)
    }
}

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
        let isRoot = geteuid() == 0
        let places = try isRoot ? DaemonSearch.allPlaces(MountTable.read()) : DaemonSearch.ownPlaces()
        let found = DaemonSearch.ask(places) { socket in ask(socket, request) }.compactMap { $0 }
        return (found + (try unanswered(beside: found))).sorted { $0.mountpoint < $1.mountpoint }
    }

    /// Again, to the same daemon.
    func asking(_ request: ControlRequest) -> MountAnswer {
        guard let socket else { return self }
        return MountAnswer(mountpoint: mountpoint, socket: socket, outcome: Self.send(request, to: socket))
    }

    /// Nil for a socket that a dead daemon left.
    private static func ask(_ socket: DaemonSocket, _ request: ControlRequest) -> MountAnswer? {
        do throws(ControlError) {
            let name = Console.shown(try socket.status().mountpoint)
            return MountAnswer(mountpoint: name, socket: socket, outcome: send(request, to: socket))
        } catch {
            // Whether something is mounted there is for the mount table to say.
            if error == .noDaemon { return nil }
            let name = "the mount of \(socket.directory.path.appending(socket.name).shown)"
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
        // A user may not speak for another's mount.
        let answered = Set(found.compactMap { answer in answer.socket.map { "\($0.userID) \($0.name)" } })
        func isAnswered(_ entry: MountTable.Entry) -> Bool {
            answered.contains("\(entry.userID ?? 0) \(RuntimeDirectory.socketName(mountpoint: entry.mountpoint))")
        }
        let isRoot = geteuid() == 0
        let silent = try MountTable.read().entries.filter { entry in
            entry.isVault && (isRoot || entry.userID == geteuid()) && !isAnswered(entry)
        }
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
