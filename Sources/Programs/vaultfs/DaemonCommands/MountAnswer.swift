internal import ArgumentParser
internal import CLinux
internal import Control
internal import Daemon
internal import Glibc
internal import LinuxSystem
internal import SystemPackage

/// `[MOUNTPOINT | --all]`: the mounts to which a command sends its request.
struct MountChoice: ParsableArguments {
    @Argument(
        help: "The mountpoint. It may be left out if you have only one mount, and for 'lock', which then locks all.",
        completion: Completions.mounts)
    var mountpoint: PathArgument?

    @Flag(help: "All your mounts; as root, every user's.")
    var all = false

    @Flag(help: "Print JSON.")
    var json = false

    func validate() throws {
        guard !(all && mountpoint != nil) else { throw ValidationError("only one of MOUNTPOINT, --all can be given") }
    }

    /// Sends the request to all the mounts at once, and returns when all have answered.
    /// - Parameter timeout: returns the time to wait for a mount's answer, in seconds; nil for the request's default.
    /// - Throws: codes `mountpoint`, or `usage` if the user must name one of several mounts.
    func ask(
        _ request: ControlRequest, timeout: @escaping AnswerTimeout = { _ in nil }
    ) throws(CommandFailure) -> [MountAnswer] {
        if all { return try MountAnswer.askAll(request, timeout: timeout) }
        if let mountpoint { return [try MountAnswer.ask(mountpoint.path, request, timeout: timeout)] }
        let (name, socket, client) = try DaemonSearch.onlyMount()
        return [MountAnswer(name, socket, client, request, timeout)]
    }

    /// Makes the kernel write the dirty mapped pages back: of the mountpoint, or without one, of all mounts of this
    /// user. Other users' mounts are left out, because they may not answer.
    /// - Throws: code `mountpoint`.
    func writePagesBack() throws(CommandFailure) {
        let paths: [FilePath]
        if let mountpoint {
            paths = [try MountTable.Entry(at: mountpoint.path).path]
        } else {
            paths = try CommandFailure.mapping(try MountTable.read()).mountsOfThisUser.filter { $0.userID == geteuid() }
                .map(\.path)
        }
        for path in paths {
            let flags = O_RDONLY | O_DIRECTORY | O_NOFOLLOW
            guard let mount = try? Descriptor(path: path, flags: flags) else { continue }
            linux_syncfs(mount.fd)
        }
    }

    /// Prints the answers, and a line on stderr for each failure.
    /// - Parameters:
    ///   - acceptsDead: true if the command counts a mount with an ended daemon as done, unless programs have it open.
    ///   - show: prints a response for people, unless the user wants JSON. Throws the failure in a response.
    /// - Throws: the failure if it is the only one, otherwise the exit code of the first one after printing all.
    func report(
        _ answers: [MountAnswer], acceptsDead: Bool = false,
        show: (_ mountpoint: String, ControlResponse) throws(CommandFailure) -> Void
    ) throws {
        var failures: [CommandFailure] = []
        if answers.isEmpty, !json { Console.confirm("No vault is mounted.") }
        for answer in answers {
            switch answer.outcome {
            case .answered(let response):
                do throws(CommandFailure) { try show(answer.mountpoint, response) } catch { failures.append(error) }
            case .dead where !acceptsDead: failures.append(.dead(at: answer.mountpoint))
            case .dead(let path):
                // The kernel keeps the pages of open files, but refuses to open the files again.
                let users = MountUsers.names(of: path)
                if !users.isEmpty {
                    failures.append(.stillReadable(answer.mountpoint, by: users))
                } else if !json {
                    Console.confirm("\(answer.mountpoint): its daemon has ended; it holds nothing")
                }
            case .unreachable(let reason): failures.append(CommandFailure(.failure, "\(answer.mountpoint): \(reason)"))
            }
        }
        if json { if all { try Console.printJSON(answers) } else { try Console.printJSON(answers.first) } }
        guard let first = failures.first else { return }
        if failures.count == 1 { throw first }
        for failure in failures { Console.report(failure.message) }
        throw ExitCode(first.code.rawValue)
    }
}

extension CommandFailure {
    static func dead(at mountpoint: String) -> CommandFailure {
        CommandFailure(
            .mountpoint, "\(mountpoint): its daemon has ended: 'vaultfs unmount \(mountpoint)' removes the mount")
    }

    /// The failure for a mount with an ended daemon, if its files are still open.
    /// - Parameter users: the programs with open files of the mount.
    fileprivate static func stillReadable(_ mountpoint: String, by users: String) -> CommandFailure {
        CommandFailure(
            .notPurged,
            "\(mountpoint): its daemon has ended, but the kernel may still have data of files that are open in "
                + "\(users): end what uses it, then 'vaultfs unmount \(mountpoint)'")
    }
}

/// Returns the time to wait for the answer of a mount's daemon, in seconds; nil for the request's default.
typealias AnswerTimeout = @Sendable (DaemonSocket) -> Int?

/// The outcome of a request to one mount. As JSON: the daemon's answer and the mountpoint.
struct MountAnswer: Encodable, Sendable {
    enum Outcome: Sendable {
        case answered(ControlResponse)
        /// The daemon of the mount at this path has died with its keys. The kernel may have pages of open files.
        case dead(FilePath)
        /// The daemon did not answer, for this reason.
        case unreachable(String)
    }

    private enum CodingKeys: CodingKey {
        case mountpoint, state, error
    }

    /// The mountpoint for messages.
    let mountpoint: String
    /// The daemon's socket; nil if it was not found.
    let socket: DaemonSocket?
    let outcome: Outcome
    /// The path of the vault or the view's source in the mount table, for a mount without an answer. Not in the JSON.
    var source: String?

    func encode(to encoder: any Encoder) throws {
        var fields = encoder.container(keyedBy: CodingKeys.self)
        switch outcome {
        case .answered(.status(let status)): return try status.encode(to: encoder)
        case .answered(let response): try response.encode(to: encoder)
        case .dead: try fields.encode("dead", forKey: .state)
        case .unreachable(let reason): try fields.encode(reason, forKey: .error)
        }
        try fields.encode(mountpoint, forKey: .mountpoint)
    }
}

extension MountAnswer {
    /// Sends a request, and keeps the response or the reason for its absence.
    fileprivate init(
        _ mountpoint: String, _ socket: DaemonSocket, _ client: ControlClient, _ request: ControlRequest,
        _ timeout: AnswerTimeout
    ) {
        let limit = timeout(socket)
        self.init(mountpoint, socket) { () throws(ControlError) in
            do throws(ControlError) { return try client.send(request, timeout: limit) } catch {
                guard error == .timedOut, case .lock = request, let limit else { throw error }
                throw .noAnswer(
                    "no answer came in \(limit) s, so it may be locked or not: see 'vaultfs status', or end "
                        + "it with 'vaultfs unmount --force'")
            }
        }
    }

    /// Keeps the response from `send`, or the reason for its absence.
    fileprivate init(_ mountpoint: String, _ socket: DaemonSocket, _ send: () throws(ControlError) -> ControlResponse) {
        do throws(ControlError) {
            self.init(mountpoint: mountpoint, socket: socket, outcome: .answered(try send()))
        } catch {
            self.init(mountpoint: mountpoint, socket: socket, outcome: .unreachable("\(error)"))
        }
    }

    static func ask(
        _ path: FilePath, _ request: ControlRequest, timeout: AnswerTimeout = { _ in nil }
    ) throws(CommandFailure) -> MountAnswer {
        let mount = try MountTable.Entry(at: path)
        do throws(ControlError) {
            let (socket, client) = try mount.connect()
            return MountAnswer(mount.path.shown, socket, client, request, timeout)
        } catch {
            let reason = mount.reason(error, to: request.action)
            let outcome: Outcome = mount.isDead() ? .dead(mount.path) : .unreachable(reason)
            return MountAnswer(mountpoint: mount.path.shown, socket: nil, outcome: outcome)
        }
    }

    /// Sends the same daemon another request, on a new connection, because a prompt may have taken a long time.
    func asking(_ request: ControlRequest) -> MountAnswer {
        guard let socket else { return self }
        return MountAnswer(mountpoint, socket) { () throws(ControlError) in try socket.connect().send(request) }
    }

    /// Asks all mounts of this user, or for root of all users.
    static func askAll(
        _ request: ControlRequest, timeout: @escaping AnswerTimeout = { _ in nil }
    ) throws(CommandFailure) -> [MountAnswer] {
        let table = try CommandFailure.mapping(try MountTable.read())
        let mounts = Dictionary(table.mountsOfThisUser.map { (key($0), $0) }) { $1 }
        let found = DaemonSearch.ask(DaemonSearch.directories(table)) { socket -> MountAnswer? in
            // The socket may be left from a dead daemon. The mount table shows whether its mount is left, too.
            guard let client = try? socket.connect() else { return nil }
            do throws(ControlError) {
                let name = Console.shown(try client.status().mountpoint)
                return MountAnswer(name, socket, client, request, timeout)
            } catch {
                let name =
                    mounts[key(socket)]?.path.shown
                    ?? "the mount of \(socket.directory.path.appending(entry: socket.name).shown)"
                return MountAnswer(mountpoint: name, socket: socket, outcome: .unreachable("\(error)"))
            }
        }
        let answered = Set(found.compactMap { $0.socket.map(key) })
        let silent = mounts.filter { !answered.contains($0.key) }.map(\.value)
        let outcomes = ParallelWork.map(silent) { entry -> Outcome in
            entry.isDead() ? .dead(entry.path) : .unreachable("\(ControlError.noDaemon)")
        }
        // Leave out mounts that have been unmounted meanwhile.
        let now = try CommandFailure.mapping(try MountTable.read())
        let unanswered = zip(silent, outcomes).compactMap { entry, outcome -> MountAnswer? in
            guard now.entry(at: entry.mountpoint)?.isOurs == true else { return nil }
            return MountAnswer(
                mountpoint: entry.path.shown, socket: nil, outcome: outcome,
                source: FilePath(bytes: entry.source).shown)
        }
        return (found + unanswered).sorted { $0.mountpoint < $1.mountpoint }
    }

    /// Returns the user and the socket's name. With the user in it, another user cannot answer for this mount.
    private static func key(_ entry: MountTable.Entry) -> String {
        "\(entry.userID ?? 0) \(RuntimeDirectory.socketName(mountpoint: entry.mountpoint))"
    }

    private static func key(_ socket: DaemonSocket) -> String { "\(socket.userID) \(socket.name)" }
}
