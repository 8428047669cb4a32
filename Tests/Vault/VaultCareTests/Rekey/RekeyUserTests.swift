import Foundation
import Glibc
import LinuxSystem
import TestSupport
import Testing
import VaultFormat

@testable import VaultCare
@testable import VaultStore
@testable import VaultStoreTests

/// A rekey by an ordinary user, with objects that deny this user access or every change.
@Suite(.timeLimit(.minutes(60)), .enabled(if: geteuid() == 0)) struct RekeyUserTests {
    private static let long = RekeyVault.long

    private static func closed() throws -> ClosedVault {
        let modes: [String: mode_t] = [
            "555": 0o555, "500": 0o500, "300": 0o300, "000": 0, "000/inner": 0o300, "000/inner/file": 0o200,
            "f200": 0o200, "f000": 0, "f444": 0o444, "555/file": 0o644,
        ]
        return try ClosedVault(modes: modes) { writer in
            for name in ["555", "500", "300", "000"] {
                let directory = try writer.directory(name)
                try writer.file("file", count: 5000, in: directory)
                try writer.file(long, count: 1, in: directory)
                try directory.makeLink(ascii("link"), target: ascii("to \(name)"), owner: nil)
                if name == "000" {
                    try writer.file("file", count: 100, in: try writer.directory("inner", in: directory))
                }
                let pin = try directory.reopenedForListing().descriptor
                try writer.setAttribute("user.name", name, key: directory.keys.attributeKey, on: pin)
                if name == "300" {
                    try writer.file("f000", count: 9000)
                    try directory.link(
                        ascii("hard"), to: try writer.root.encode(ascii("f000")).entry, in: writer.root.descriptor)
                }
            }
            for name in ["f200", "f444"] { try writer.file(name, count: 300) }
        }
    }

    @Test(
        "a file that denies access to its owner is reported and unchanged; once opened, it is rekeyed: modes and times stay"
    )
    func closedToOwner() throws {
        let vault = try Self.closed()
        let before = try ClosedVault.tree(vault.path)
        #expect(before["000/inner/"]?.mode == 0o300 && before["f000"]?.names.count == 2)
        let (outcome, problems) = try ClosedVault.rekey(vault.path)
        #expect(!outcome.isFinished && outcome.totals.denied == outcome.totals.problems)
        #expect(problems == ["000", "300", "500", "555", "f000", "f200"].map { "\($0): Permission denied" })
        expectSame(try ClosedVault.tree(vault.path), before)
        for isReadOnly in [true, false] { try ClosedVault.open(vault.path, isReadOnly: isReadOnly) }
        try Command(["chmod", "-R", "u+rwX", vault.path]).run().succeeded()
        let opened = try ClosedVault.tree(vault.path)
        #expect(try ClosedVault.rekey(vault.path).outcome.isFinished)
        expectSame(try ClosedVault.tree(vault.path), opened)
        #expect(try ClosedVault.isClean(vault.path) && RekeyVault.notes(vault.path).isEmpty)
    }

    @Test("another user's directory: everything else is rekeyed, the rest is named, and the vault is read and written")
    func anothersDirectory() throws {
        let vault = try ClosedVault(modes: ["other": 0o755, "private": 0o700, "mine/file": 0o444, "mine": 0o755]) {
            for name in ["other", "private", "mine"] { try $0.file("file", count: 10, in: try $0.directory(name)) }
        }
        try chown(vault, ["other", "private"], to: 0)
        let before = try ClosedVault.tree(vault.path)
        let (outcome, problems) = try ClosedVault.rekey(vault.path)
        #expect(!outcome.isFinished && outcome.totals.files == 1)
        for path in ["other/file", "other", "private"] {
            #expect(problems.count { $0.hasPrefix(path + ": ") } == 1, "\(problems)")
        }
        #expect(problems.count == 3, "\(problems)")
        expectSame(try ClosedVault.tree(vault.path), before)
        for isReadOnly in [true, false] { try ClosedVault.open(vault.path, isReadOnly: isReadOnly) }
        expectSame(try ClosedVault.tree(vault.path), before)
        #expect(try RekeyVault.open(vault.path).directory.configuration.isRekeying)
        // The root's names have changed by now, unlike those in other users' directories.
        let now = try others(in: vault.path)
        for path in now { try chown(path, to: OrdinaryUser.id) }
        #expect(now.count == 2)
        let expected = try ClosedVault.tree(vault.path)
        #expect(try ClosedVault.rekey(vault.path).outcome.isFinished)
        expectSame(try ClosedVault.tree(vault.path), expected)
        #expect(try ClosedVault.isClean(vault.path))
    }

    /// Gives a directory and its content to a user.
    private func chown(_ path: String, to user: uid_t) throws {
        try Command(["chown", "-R", "\(user)", path]).run().succeeded()
    }

    private func chown(_ vault: ClosedVault, _ names: [String], to user: uid_t) throws {
        for name in names { try chown(try #require(vault.backing[name]), to: user) }
    }

    private func directories(in path: String) throws -> [String] {
        try FileManager.default.contentsOfDirectory(atPath: path).map { path + "/" + $0 }.filter { path in
            var status = stat()
            return lstat(path, &status) == 0 && status.st_mode & S_IFMT == S_IFDIR
        }
    }

    /// Returns the backing directories of root, who does not own the vault.
    private func others(in path: String) throws -> [String] {
        try directories(in: path).filter { path in
            var status = stat()
            return lstat(path, &status) == 0 && status.st_uid == 0
        }
    }

    @Test(
        "an immutable file: its directory keeps its names, all else is rekeyed; the next rekey continues once it is mutable"
    )
    func immutableFile() throws {
        let vault = try ClosedVault(modes: ["closed": 0o700, "closed/fixed": 0o400]) { writer in
            let directory = try writer.directory("closed")
            for name in ["fixed", Self.long, "other"] { try writer.file(name, count: 10, in: directory) }
        }
        let before = try ClosedVault.tree(vault.path)
        let fixed = try #require(vault.backing["closed/fixed"])
        try Command(["chattr", "+i", fixed]).run().succeeded()
        // The walk from the vault's root finds the directory under its name at that time.
        defer { _ = try? Command(["chattr", "-R", "-i", vault.path]).run() }
        let (outcome, problems) = try ClosedVault.rekey(vault.path)
        #expect(!outcome.isFinished && outcome.totals.files == 2 && outcome.totals.directories == 1)
        #expect(problems.count == 2 && problems.allSatisfy { $0.contains("Operation not permitted") }, "\(problems)")
        #expect(problems.contains { $0.hasPrefix("closed/fixed: ") } && problems.contains { $0.hasPrefix("closed: ") })
        for isReadOnly in [true, false] { try ClosedVault.open(vault.path, isReadOnly: isReadOnly) }
        expectSame(try ClosedVault.tree(vault.path), before)
        try Command(["chattr", "-R", "-i", vault.path]).run().succeeded()
        #expect(try ClosedVault.rekey(vault.path).outcome.isFinished)
        expectSame(try ClosedVault.tree(vault.path), before)
        #expect(try ClosedVault.isClean(vault.path))
    }

    @Test("a root that denies writing: refused before anything is changed")
    func closedRoot() throws {
        let vault = try ClosedVault(modes: [:]) { try $0.file("file", count: 10) }
        let before = try ClosedVault.tree(vault.path)
        #expect(chmod(vault.path, 0o555) == 0)
        let error = #expect(throws: VaultError.self) { try ClosedVault.rekey(vault.path) }
        #expect(error?.description.contains("Permission denied") == true)
        #expect(chmod(vault.path, before[""]?.mode ?? 0) == 0)
        expectSame(try ClosedVault.tree(vault.path), before)
        #expect(try ClosedVault.rekey(vault.path).outcome.isFinished)
        expectSame(try ClosedVault.tree(vault.path), before)
    }

    // MARK: Full disks

    /// Small, because it is copied hundreds of times.
    private static func small() throws -> ClosedVault {
        let modes: [String: mode_t] = ["directory": 0o750, "directory/file": 0o400, "several": 0o440]
        return try ClosedVault(modes: modes) { writer in
            let directory = try writer.directory("directory")
            let inner = try writer.directory("inner", in: directory)
            try writer.file("file", count: 10, in: directory)
            try writer.file(long, count: 10, in: inner)
            try writer.file("several", count: 10)
            try inner.link(
                ascii("hard"), to: try writer.root.encode(ascii("several")).entry, in: writer.root.descriptor)
            let pin = try inner.reopenedForListing().descriptor
            try writer.setAttribute("user.name", "value", key: inner.keys.attributeKey, on: pin)
        }
    }

    @Test("ENOSPC: the disk full from any call on: nothing is lost, and with space the rekey is completed")
    func fullDisk() throws {
        let vault = try Self.small()
        let before = try ClosedVault.tree(vault.path)
        try OrdinaryUser.act { try RekeyVault.begin(vault.path) }
        let copies = DirectoryCopies(of: vault.path)
        try copies.take()
        var call = 0
        var wasFull = true
        while wasFull {
            try copies.putBack(copies.paths[0])
            var failure: (any Error)?
            wasFull = CallWatcher.fullDisk(in: vault.path, from: call) {
                do { _ = try ClosedVault.rekey(vault.path, threads: 1) } catch { failure = error }
            }
            let said = failure.map { "\($0)" } ?? ""
            #expect(wasFull ? said.contains("No space left on device") : said.isEmpty, "\(call) \(said)")
            try ClosedVault.open(vault.path)
            expectSame(try ClosedVault.tree(vault.path), before, exceptRootTimes: true, "full at call \(call)")
            if call % 4 == 0 {
                #expect(try ClosedVault.rekey(vault.path).outcome.isFinished, "full at call \(call)")
                expectSame(try ClosedVault.tree(vault.path), before, exceptRootTimes: true, "full at call \(call)")
                #expect(try ClosedVault.isClean(vault.path), "full at call \(call)")
            }
            call += 3
        }
        #expect(call > 45)
    }

    private func expectSame(
        _ found: [String: RekeyVault.Shown], _ expected: [String: RekeyVault.Shown], exceptRootTimes: Bool = false,
        _ what: String = "", sourceLocation: SourceLocation = #_sourceLocation
    ) {
        var (found, expected) = (found, expected)
        if exceptRootTimes {
            found[""]?.modified = []
            expected[""]?.modified = []
        }
        for path in Set(found.keys).union(expected.keys).sorted() where found[path] != expected[path] {
            Issue.record(
                "\(what): \(path) is \(found[path] as Any), was \(expected[path] as Any)",
                sourceLocation: sourceLocation)
        }
    }
}
