import Foundation
import Glibc
import LinuxSystem
import Synchronization
import SystemPackage
import TestSupport
import Testing
import VaultFormat

@testable import VaultCare
@testable import VaultStore
@testable import VaultStoreTests

/// Unreadable objects, which a rekey must not treat as removed, foreign, or done (FileFormat: Store-28).
@Suite(.timeLimit(.minutes(60))) struct RekeyDoubtTests {
    /// A fault for one of the first calls of a kind, counted for each path.
    private final class Faults: Sendable {
        private let seen = Mutex<[String: Int]>([:])

        /// - Parameter number: the number of the failing call for a path, from 1.
        func once(_ path: String, number: Int = 1) -> Int32 {
            let count = seen.withLock { seen in
                seen[path, default: 0] += 1
                return seen[path]
            }
            return count == number ? EIO : 0
        }
    }

    private func file(_ path: String) -> String { URL(filePath: path).lastPathComponent }

    private func isRekeying(_ vault: RekeyVault) throws -> Bool {
        try VaultDirectory.open(FilePath(vault.path)).configuration.isRekeying
    }

    @Test("an extended file with holes is reported and kept, and not sealed at its new length")
    func extended() throws {
        let vault = try RekeyVault()
        let backing = try vault.vault.backing("sparse")
        let before = try VerifierVault.contents(backing)
        #expect(truncate(backing, off_t(before.count + 500_000)) == 0)
        let outcome = try RekeyVault.rekey(vault.path)
        #expect(!outcome.isFinished && outcome.totals.problems == 1)
        // The file has a new name, and keeps its header.
        let kept = try vault.vault.everything().filter {
            access($0 + "/.", F_OK) != 0 && (try? VerifierVault.contents($0).starts(with: before)) == true
        }
        try #require(kept.count == 1)
        #expect(truncate(kept[0], off_t(before.count)) == 0)
        #expect(try RekeyVault.rekey(vault.path).isFinished)
    }

    @Test("an object that has lost its name and cannot be read may be the vault's", arguments: [true, false])
    func nameless(isDirectory: Bool) throws {
        let long = RekeyVault.long
        let vault = try RekeyVault { writer in
            if isDirectory {
                try writer.file("file", count: 10, in: try writer.directory(long))
            } else {
                try writer.file(long, count: 10)
            }
        }
        let entry = try vault.vault.backing(long)
        let sidecar = try VerifierVault.contents(entry + ".name")
        unlink(entry + ".name")
        let unreadable = isDirectory ? entry + "/vaultfs.dir" : entry
        let outcome = try ReadFault.during(
            in: vault.path,
            { kind, path in
                if case .bytes = kind, path == unreadable { EIO } else { 0 }
            }, { try RekeyVault.rekey(vault.path) })
        #expect(!outcome.isFinished && outcome.totals.problems > 0)
        #expect(try isRekeying(vault))
        try Data(sidecar).write(to: URL(filePath: entry + ".name"))
        #expect(try RekeyVault.rekey(vault.path).isFinished)
        #expect(try RekeyVault.notes(vault.path).isEmpty)
    }

    /// Makes a file or a link with three names in three directories.
    private static func several(isLink: Bool) throws -> RekeyVault {
        try RekeyVault { writer in
            if isLink {
                try writer.root.makeLink(ascii("1"), target: ascii("elsewhere"), owner: nil)
            } else {
                try writer.file("1", count: 5000)
            }
            for name in ["2", "3"] {
                try writer.directory("in \(name)").link(
                    ascii(name), to: try writer.root.encode(ascii("1")).entry, in: writer.root.descriptor)
            }
        }
    }

    @Test("a file stays one file if some of its names could not be read at first", arguments: [1, 2, 3])
    func names(unread: Int) throws {
        let vault = try Self.several(isLink: false)
        let before = try RekeyVault.tree(at: vault.path)
        let names = ["1", "in 2/2", "in 3/3"]
        #expect(before["1"]?.names == names)
        let hidden = try names.prefix(unread).map { try vault.vault.backing($0) }
        let faults = Faults()
        let outcome = try ReadFault.during(
            in: vault.path,
            { kind, path in
                if case .bytes = kind, hidden.contains(path) { faults.once(path) } else { 0 }
            }, { try RekeyVault.rekey(vault.path) })
        #expect(!outcome.isFinished && outcome.totals.problems > 0)
        #expect(try RekeyVault.tree(at: vault.path)["1"]?.names == names)
        #expect(try RekeyVault.rekey(vault.path).isFinished)
        #expect(try RekeyVault.tree(at: vault.path) == before)
    }

    @Test(
        "a file or link stays one object if a directory with one of its names could not be listed at first",
        arguments: [true, false])
    func namesInDirectory(isLink: Bool) throws {
        let vault = try Self.several(isLink: isLink)
        let before = try RekeyVault.tree(at: vault.path)
        let directory = try vault.vault.backing("in 2")
        let faults = Faults()
        let outcome = try ReadFault.during(
            in: vault.path,
            { kind, path in
                if case .entries = kind, path == directory { faults.once(path) } else { 0 }
            }, { try RekeyVault.rekey(vault.path) })
        #expect(!outcome.isFinished && outcome.totals.problems > 0)
        #expect(try RekeyVault.tree(at: vault.path)["1"]?.names == ["1", "in 2/2", "in 3/3"])
        #expect(try RekeyVault.rekey(vault.path).isFinished)
        #expect(try RekeyVault.tree(at: vault.path) == before)
    }

    @Test("for a file that also has a name outside the vault, the names inside are rekeyed, and this is reported")
    func nameOutside() throws {
        let vault = try RekeyVault { writer in
            for name in ["one", "two"] { try writer.file(name, count: 5000) }
            try writer.root.link(
                ascii("two again"), to: try writer.root.encode(ascii("two")).entry, in: writer.root.descriptor)
        }
        let before = try RekeyVault.tree(at: vault.path)
        let outside = ["one", "two"].map { vault.path + "." + $0 }
        defer { for path in outside { unlink(path) } }
        for name in ["one", "two"] { #expect(link(try vault.vault.backing(name), vault.path + "." + name) == 0) }
        let contents = try outside.map { try VerifierVault.contents($0) }
        let outcome = try RekeyVault.rekey(vault.path)
        #expect(outcome.isFinished && outcome.totals.elsewhere == 2)
        #expect(try RekeyVault.tree(at: vault.path) == before)
        #expect(try outside.map { try VerifierVault.contents($0) } == contents)
    }

    @Test("a sidecar whose entry cannot be examined does not stay under the old key")
    func sidecar() throws {
        let vault = try RekeyVault { writer in try writer.file(RekeyVault.long, count: 10) }
        let before = try RekeyVault.tree(at: vault.path)
        let entry = try vault.vault.backing(RekeyVault.long)
        let faults = Faults()
        let outcome = try ReadFault.during(
            in: vault.path,
            { kind, path in
                // The fourth check fails, after one in each of three walks.
                if case .status = kind, path == entry { faults.once(path, number: 4) } else { 0 }
            }, { try RekeyVault.rekey(vault.path) })
        #expect(!outcome.isFinished && outcome.totals.problems > 0)
        #expect(try RekeyVault.rekey(vault.path).isFinished)
        #expect(try RekeyVault.tree(at: vault.path) == before)
        #expect(try !FileManager.default.contentsOfDirectory(atPath: vault.path).contains(file(entry) + ".name"))
    }

    @Test("a sidecar without an entry is removed, or keeps the rekey unfinished", arguments: [true, false])
    func orphanedSidecar(canBeRead: Bool) throws {
        let vault = try RekeyVault { writer in
            try writer.file(RekeyVault.long, count: 10)
            _ = try writer.directory("directory")
        }
        let entry = try vault.vault.backing(RekeyVault.long)
        try RekeyVault.rekey(
            vault.path,
            before: { (point) throws(StoreError) in
                if point == .finish { throw .system(.canceled) }
            })
        // Leaves the state of an error: an object of the old epoch among objects of the new one.
        let orphan = try RekeyVault.backing("directory", in: vault.path) + "/" + file(entry)
        try Data([UInt8](repeating: 1, count: 272)).write(to: URL(filePath: orphan + ".name"))
        let outcome = try ReadFault.during(
            in: vault.path,
            { kind, path in
                if case .status = kind, path == orphan, !canBeRead { EIO } else { 0 }
            }, { try RekeyVault.rekey(vault.path) })
        #expect(outcome.isFinished == canBeRead && outcome.totals.problems == (canBeRead ? 0 : 1))
        #expect(FileManager.default.fileExists(atPath: orphan + ".name") == !canBeRead)
        if !canBeRead { #expect(try RekeyVault.rekey(vault.path).isFinished) }
    }

    @Test("a step of a file's names that cannot be undone completely does not count as undone")
    func undoneNames() throws {
        let vault = try RekeyVault { writer in
            try writer.file("0", count: 10)
            let entry = try writer.root.encode(ascii("0")).entry
            for number in 1..<5 { try writer.root.link(ascii("\(number)"), to: entry, in: writer.root.descriptor) }
        }
        let before = try RekeyVault.tree(at: vault.path)
        let entries = try (0..<5).map { try vault.vault.backing("\($0)") }
        let faults = Faults()
        let renamed = Mutex(0)
        // The step succeeds for one name and fails for the second. One check was in the survey. During the undo, the
        // second check of the first name fails.
        #expect(throws: VaultError.self) {
            try ReadFault.during(
                in: vault.path,
                { kind, path in
                    if case .status = kind, entries.contains(path) { faults.once(path, number: 4) } else { 0 }
                },
                {
                    try RekeyVault.rekey(
                        vault.path, threads: 1,
                        before: { (point) throws(StoreError) in
                            guard point == .renameLink else { return }
                            let number = renamed.withLock { number in
                                number += 1
                                return number
                            }
                            if number == 2 { throw .system(.notPermitted) }
                        })
                })
        }
        #expect(try RekeyVault.tree(at: vault.path) == before)
        #expect(try RekeyVault.rekey(vault.path).isFinished)
        #expect(try RekeyVault.tree(at: vault.path) == before)
    }

    @Test("a leftover directory that cannot be listed keeps its record")
    func leftoverDirectory() throws {
        let vault = try RekeyVault { writer in
            try writer.file("file", count: 10, in: try writer.directory("directory"))
        }
        let leftover = vault.path + "/vaultfs.tmp.77"
        #expect(rename(try vault.vault.backing("directory"), leftover) == 0)
        let outcome = try ReadFault.during(
            in: vault.path,
            { kind, path in
                if case .entries = kind, path == leftover { EIO } else { 0 }
            }, { try RekeyVault.rekey(vault.path) })
        #expect(!outcome.isFinished && outcome.totals.problems == 1)
        #expect(FileManager.default.fileExists(atPath: leftover + "/vaultfs.dir"))
    }
}
