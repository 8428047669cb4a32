import Foundation
import Glibc
import Synchronization
import SystemPackage
import TestSupport
import Testing

@testable import VaultCare
@testable import VaultStore
@testable import VaultStoreTests

/// An ordinary user's vault with directories and files that deny this user access, for rekey tests. root inspects it
/// without changing a mode.
final class ClosedVault {
    private static let times = [
        timespec(tv_sec: 1_000_000_000, tv_nsec: 5), timespec(tv_sec: 1_100_000_000, tv_nsec: 7),
    ]

    let vault: RekeyVault
    var path: String { vault.path }
    /// The backing paths before the rekey, by plaintext path.
    let backing: [String: String]

    /// - Parameter modes: the modes of the objects that `fill` makes, by plaintext path.
    init(modes: [String: mode_t], _ fill: (VerifierVaultWriter) throws -> Void) throws {
        vault = try OrdinaryUser.act { try RekeyVault(fill) }
        let inner = vault.vault
        backing = try Dictionary(uniqueKeysWithValues: modes.keys.map { ($0, try inner.backing($0)) })
        for (name, mode) in modes.sorted(by: { $0.key > $1.key }) {
            let path = backing[name] ?? ""
            #expect(utimensat(AT_FDCWD, path, Self.times, 0) == 0 && chmod(path, mode) == 0, "\(name)")
        }
        #expect(utimensat(AT_FDCWD, path, Self.times, 0) == 0)
    }

    /// Returns everything that must stay, including times and modes of the root.
    static func tree(_ path: String) throws -> [String: RekeyVault.Shown] {
        try RekeyVault.tree(at: path, isReadOnly: true)
    }

    /// Opens the vault as the owner's mount does, for writing or reading.
    static func open(_ path: String, isReadOnly: Bool = false) throws {
        try OrdinaryUser.act {
            let (directory, masterKey, _) = try RekeyVault.open(path)
            let keyRing = try KeyRing(masterKey: masterKey, configuration: directory.configuration)
            _ = try withExtendedLifetime(directory) {
                try Store(root: directory.root, keyRing: keyRing, cacheSize: 0, isReadOnly: isReadOnly)
            }
        }
    }

    /// Rekeys as the owner, to the end or as far as possible.
    /// - Returns: the outcome, and the problems with their paths.
    static func rekey(
        _ path: String, threads: Int = 2, before: @escaping RekeyHook = { _ in }
    ) throws -> (outcome: RekeyOutcome, problems: [String]) {
        let problems = Problems()
        let outcome = try OrdinaryUser.act {
            try RekeyVault.rekey(
                path, threads: threads, before: before,
                onProblem: { path, reason in problems.add("\(path): \(reason)") })
        }
        return (outcome, problems.all)
    }

    /// Returns true if the vault is free of a rekey's temporary files.
    static func isClean(_ path: String) throws -> Bool {
        try FileManager.default.subpathsOfDirectory(atPath: path).allSatisfy { entry in
            !["vaultfs.rekey", "vaultfs.tmp."].contains { entry.contains($0) }
        }
    }
}

/// The steps that a rekey could not do, added by any thread.
private final class Problems: Sendable {
    private let state = Mutex<[String]>([])
    var all: [String] { state.withLock { $0.sorted() } }
    func add(_ problem: String) { state.withLock { $0.append(problem) } }
}
