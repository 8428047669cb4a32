internal import Control
internal import Daemon
internal import FoundationEssentials
internal import Glibc
internal import LinuxSystem
internal import SystemPackage

extension MountTable.Entry {
    /// The mountpoint, as the kernel spells it.
    var path: FilePath { FilePath(bytes: mountpoint) }

    /// Finds the mount of a vault or view by what a person has typed: the path of the mountpoint, the vault or the
    /// source, or the vault's label.
    /// - Throws: code `mountpoint`, or `usage` if the vault has several mounts.
    init(at typed: FilePath) throws(CommandFailure) {
        do throws(CommandFailure) { self = try Self(atPath: typed) } catch {
            guard let vault = try? KnownVaults.vault(typed: typed) else { throw error }
            self = try Self(atPath: FilePath(vault.path))
        }
    }

    private init(atPath typed: FilePath) throws(CommandFailure) {
        let table = try CommandFailure.mapping(try MountTable.read())
        let resolved: FilePath
        do throws(Errno) {
            let mountpoint = try ResolvedPath.ofMountpoint(typed)
            // If nothing is mounted at this name, it may be a link to a mountpoint.
            resolved = try table.entry(at: mountpoint.bytes) == nil ? ResolvedPath.of(typed) : mountpoint
        } catch {
            // Another user's home directory may be closed to this user, but the table still names their mount.
            let named = typed.lexicallyNormalized()
            guard error == .permissionDenied, table.entry(at: named.bytes)?.isOurs == true else {
                let message =
                    error == .noSuchFileOrDirectory
                    ? "nothing is mounted at \(typed.shown), which does not exist: 'vaultfs status' lists your mounts"
                    : "cannot examine \(typed.shown): \(error)"
                throw CommandFailure(.mountpoint, message)
            }
            resolved = named
        }
        if let entry = table.entry(at: resolved.bytes) {
            guard entry.isOurs else {
                throw CommandFailure(.mountpoint, "not a vault: \(resolved.shown) is a mount of type \(entry.type)")
            }
            self = entry
        } else {
            self = try Self.only(table.mounts(from: resolved.bytes), of: typed, user: geteuid())
        }
    }

    /// Returns the mount of a vault named by its own path. Only this user's mounts count, even for root: another user's
    /// mount may claim any source, and would then get the passphrase.
    static func only(
        _ mounts: [MountTable.Entry], of vault: FilePath, user: uid_t
    ) throws(CommandFailure) -> MountTable.Entry {
        let own = mounts.filter { $0.userID == user }
        let names = own.map(\.path.shown).joined(separator: ", ")
        guard let entry = own.first else {
            throw CommandFailure(
                .mountpoint,
                mounts.isEmpty ? "not mounted: \(vault.shown)" : "\(vault.shown) is \(others(mounts, user: user))")
        }
        guard own.count == 1 else {
            throw CommandFailure(.usage, "\(vault.shown) is mounted several times (\(names)): name one")
        }
        return entry
    }

    /// `mounted by bob at /home/bob/Private: only they or root can use it`
    private static func others(_ mounts: [MountTable.Entry], user: uid_t) -> String {
        let names = mounts.map { entry in
            "by \(MountOwner.name(of: entry.userID ?? 0)) at \(entry.path.shown)"
        }
        let advice = user == 0 ? "name that mountpoint" : "only they or root can use it"
        return "mounted \(names.joined(separator: ", ")): \(advice)"
    }

    /// Connects to the mount's daemon.
    /// - Throws: `noDaemon`.
    func connect() throws(ControlError) -> (socket: DaemonSocket, client: ControlClient) {
        let name = RuntimeDirectory.socketName(mountpoint: path.bytes)
        var directories = DaemonSearch.ownDirectories()
        // Root may also ask another user's daemon.
        if geteuid() == 0, let user = userID, user != 0, let table = try? MountTable.read() {
            directories = DaemonSearch.allDirectories(table).filter { $0.userID == user } + directories
        }
        let found = DaemonSearch.ask(directories, named: name) { socket -> (DaemonSocket, ControlClient)? in
            guard let client = try? socket.connect() else { return nil }
            return (socket, client)
        }
        guard let first = found.first else { throw .noDaemon }
        return first
    }

    /// Returns the reason for a missing answer, for people: the mount is another user's, or the error itself.
    /// - Parameter action: `lock it`.
    func reason(_ error: ControlError, to action: String) -> String {
        MountOwner(of: self)?.refusal(to: action) ?? "\(error)"
    }
}

extension ControlRequest {
    /// The request in words, for a message after "can".
    var action: String {
        switch self {
        case .status: "see its status"
        case .sync: "synchronize it"
        case .lock: "lock it"
        case .unlock: "unlock it"
        case .events: "follow its events"
        }
    }
}

struct DaemonSocket: Sendable {
    /// The owner of its directory, and so of the daemon.
    let userID: UInt32
    let directory: RuntimeDirectory
    let name: Component

    /// - Throws: `noDaemon`.
    func connect() throws(ControlError) -> ControlClient { try ControlClient(name: name, directory: directory) }
}

extension ControlClient {
    /// - Throws: `noAnswer`, `notUnderstood`.
    func status() throws(ControlError) -> MountStatus {
        switch try send(.status) {
        case .status(let status): return status
        case .error(let failure): throw .notUnderstood(Console.shown(failure.message))
        default: throw .notUnderstood("no status")
        }
    }
}

/// Finds daemons by their sockets: this user's, or for root all users'.
enum DaemonSearch {
    /// A possible run-time directory of a user.
    struct Candidate: Hashable, Sendable {
        let path: FilePath
        let userID: UInt32
    }

    /// Calls `body` with every socket in the directories, each on its own thread, and returns its results other than
    /// nil when all are done. A directory reached by several paths counts once.
    /// - Parameter name: of the only socket to ask; nil for all.
    static func ask<Answer: Sendable>(
        _ directories: [Candidate], named name: Component? = nil, _ body: @escaping @Sendable (DaemonSocket) -> Answer?
    ) -> [Answer] {
        let seen = Monitor(Set<FileIdentity>())
        // Open each on its own thread, because a hostile user's directory may hang on a file system of theirs.
        return ParallelWork.map(directories) { candidate -> [Answer] in
            guard let directory = try? RuntimeDirectory(existing: candidate.path, user: candidate.userID),
                seen.access({ $0.insert(directory.identity).inserted })
            else { return [] }
            let sockets = (name.map { [$0] } ?? directory.socketNames()).map { name in
                DaemonSocket(userID: candidate.userID, directory: directory, name: name)
            }
            return ParallelWork.map(sockets, body).compactMap { $0 }
        }.flatMap { $0 }
    }

    /// Returns this user's only mount.
    /// - Throws: codes `mountpoint` if there is none, `usage` if there are several, `failure` if no daemon answers.
    static func onlyMount() throws(CommandFailure) -> (mountpoint: String, socket: DaemonSocket, client: ControlClient)
    {
        let found = ask(ownDirectories()) { socket -> (String, DaemonSocket, ControlClient)? in
            guard let client = try? socket.connect(), let status = try? client.status() else { return nil }
            return (Console.shown(status.mountpoint), socket, client)
        }.sorted { $0.0 < $1.0 }
        if found.isEmpty {
            let mounts = try CommandFailure.mapping(try MountTable.read()).entries.filter {
                $0.isOurs && $0.userID == geteuid()
            }
            if let silent = mounts.first {
                throw CommandFailure(.failure, "\(silent.path.shown): \(ControlError.noDaemon)")
            }
        }
        return try only(found, name: \.0)
    }

    /// Returns the only mount.
    /// - Parameter name: returns a mount's name for the message.
    static func only<Mount>(
        _ found: [Mount], name: (Mount) -> String
    ) throws(CommandFailure) -> Mount {
        guard let first = found.first else { throw CommandFailure(.mountpoint, "none of your vaults is mounted") }
        if found.count == 1 { return first }
        let names = found.map(name).joined(separator: ", ")
        throw CommandFailure(.usage, "you have several mounts (\(names)): name one, or use --all")
    }

    /// Returns the directories to search: this user's, or for root all users'.
    static func directories(_ table: MountTable) -> [Candidate] {
        geteuid() == 0 ? allDirectories(table) : ownDirectories()
    }

    static func ownDirectories() -> [Candidate] { RuntimeDirectory.own.map { Candidate(path: $0, userID: geteuid()) } }

    /// Returns all users' directories. Only root can open them.
    static func allDirectories(_ table: MountTable) -> [Candidate] {
        var users = Set(table.entries.filter(\.isOurs).compactMap(\.userID))
        users.formUnion(names(in: "/run/user").compactMap { UInt32($0) })
        users.formUnion(names(in: "/tmp").compactMap { $0.hasPrefix("vaultfs-") ? UInt32($0.dropFirst(8)) : nil })
        let own = ownDirectories()
        let others = users.sorted().flatMap { user in
            RuntimeDirectory.candidates(user: user, base: nil).map { Candidate(path: $0, userID: user) }
        }
        return own + others.filter { !own.contains($0) }
    }

    private static func names(in directory: String) -> [String] {
        (try? FileManager.default.contentsOfDirectory(atPath: directory)) ?? []
    }
}
