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
        for place in standard where !found.contains(place) { found.append(place) }
        return found
    }

    private static func places(
        ofUser user: UInt32, isSelf: Bool, environment: (String) -> String?
    ) -> [Place] {
        RuntimeDirectory.candidates(user: user, isSelf: isSelf, environment: environment).map { path in
            Place(path: path, userID: user)
        }
    }

    private static func names(in directory: String) -> [String] {
        (try? FileManager.default.contentsOfDirectory(atPath: directory)) ?? []
    }
}
