internal import Control
internal import FileSystem
internal import FoundationEssentials
internal import Glibc
internal import LinuxSystem
internal import SystemPackage
internal import VaultStore

/// Finds daemons: this user's or, for root, everybody's, wherever they have their sockets.
enum DaemonSearch {
    /// A path at which a user's run-time directory may be.
    struct Place: Hashable, Sendable {
        let path: FilePath
        let userID: UInt32
    }

    /// Calls `body` with every socket in the directories of `places`, each on a thread of its own, and returns when all
    /// are done. A directory that is reached by several paths counts once.
    static func ask<Answer: Sendable>(
        _ places: [Place], _ body: @escaping @Sendable (DaemonSocket) -> Answer
    ) -> [Answer] {
        let seen = ParallelWork.Shared(Set<String>())
        // Opening one may hang, too: a hostile user's place may lie on a file system of his own.
        return ParallelWork.map(places) { place -> [Answer] in
            guard let directory = RuntimeDirectory(existing: place.path, user: place.userID),
                seen.withLock({ $0.insert(directory.identity).inserted })
            else { return [] }
            let sockets = directory.socketNames().map { name in
                DaemonSocket(userID: place.userID, directory: directory, name: name)
            }
            return ParallelWork.map(sockets, body)
        }.flatMap { $0 }
    }

    /// Where the daemons may be that concern this user: his, or, for root, everybody's.
    static func places(_ table: MountTable) -> [Place] { geteuid() == 0 ? allPlaces(table) : ownPlaces() }

    /// Where this user's daemons may be.
    static func ownPlaces() -> [Place] {
        places(ofUser: geteuid(), isSelf: true, environment: RuntimeDirectory.environmentVariable)
    }

    /// Where anybody's daemons may be; for root, who alone can look there.
    static func allPlaces(_ table: MountTable) -> [Place] {
        var users = Set(table.entries.filter(\.isVault).compactMap(\.userID))
        users.formUnion(names(in: "/run/user").compactMap { UInt32($0) })
        users.formUnion(names(in: "/tmp").compactMap { $0.hasPrefix("vaultfs-") ? UInt32($0.dropFirst(8)) : nil })
        let standard = users.sorted().flatMap { places(ofUser: $0, isSelf: false) { _ in nil } }
        var found = ownPlaces()
        for place in standard + processPlaces() where !found.contains(place) { found.append(place) }
        return found
    }

    /// As the daemons themselves were told, and as they see the file system: a container has a /run of its own.
    private static func processPlaces() -> [Place] {
        names(in: "/proc").compactMap { Int32($0) }.flatMap { processID -> [Place] in
            let process = "/proc/\(processID)"
            guard text(process + "/comm") == "vaultfs\n", let user = effectiveUser(text(process + "/status")) else {
                return []
            }
            let environment = variables(text(process + "/environ"))
            return places(ofUser: user, isSelf: true) { environment[$0] }.map { place in
                Place(path: FilePath(process + "/root").appending(place.path.components), userID: user)
            }
        }
    }

    private static func places(
        ofUser user: UInt32, isSelf: Bool, environment: (String) -> String?
    ) -> [Place] {
        RuntimeDirectory.candidates(user: user, isSelf: isSelf, environment: environment).map { path in
            Place(path: path, userID: user)
        }
    }

    /// The second number of `Uid:` in /proc/PID/status (proc_pid_status(5)).
    static func effectiveUser(_ status: String) -> UInt32? {
        status.split(separator: "\n").first { $0.hasPrefix("Uid:") }
            .flatMap { $0.split(whereSeparator: \.isWhitespace).dropFirst(2).first }.flatMap { UInt32($0) }
    }

    /// `NAME=value`, each ended by a NUL (proc_pid_environ(5)).
    static func variables(_ environment: String) -> [String: String] {
        var variables: [String: String] = [:]
        for line in environment.split(separator: "\0") {
            let parts = line.split(separator: "=", maxSplits: 1, omittingEmptySubsequences: false)
            // getenv(3) takes the first.
            if parts.count == 2, variables[String(parts[0])] == nil { variables[String(parts[0])] = String(parts[1]) }
        }
        return variables
    }

    /// Nothing where it cannot be read: the process may have gone.
    private static func text(_ path: String) -> String {
        guard let bytes = try? SecretReader.read(path: FilePath(path), limit: 1 << 20) else { return "" }
        return bytes.withBytes { String(decoding: $0, as: UTF8.self) }
    }

    private static func names(in directory: String) -> [String] {
        (try? FileManager.default.contentsOfDirectory(atPath: directory)) ?? []
    }
}
