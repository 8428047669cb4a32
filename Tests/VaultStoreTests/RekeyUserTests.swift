import FileSystem
import Foundation
import Glibc
import LinuxSystem
import Synchronization
import SystemPackage
import TestSupport
import Testing
import VaultFormat

@testable import VaultStore

/// A rekey by a user who is not root, of a vault in which some is closed to him, and some cannot be changed by him at all.
@Suite(.timeLimit(.minutes(20)), .enabled(if: geteuid() == 0)) struct RekeyUserTests {
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

    @Test("what is closed to its owner is rekeyed, and stays closed: modes and times are as before")
    func closedToOwner() throws {
        let vault = try Self.closed()
        let before = try ClosedVault.tree(vault.path)
        #expect(before["000/inner/"]?.mode == 0o300 && before["f000"]?.names.count == 2)
        // The slot of a file that is closed, too.
        try vault.vault.vault.fillSlot(
            5, file: VerifierVault.contents(try #require(vault.backing["f000"])), chunk: 9,
            record: [UInt8](repeating: 3, count: 40))
        let (outcome, problems) = try ClosedVault.rekey(vault.path)
        #expect(outcome.isFinished && problems == [])
        expectSame(try ClosedVault.tree(vault.path), before)
        #expect(try ClosedVault.isClean(vault.path) && RekeyVault.notes(vault.path).isEmpty)
    }

    @Test("a closed file with many names, which many threads come to at once: it stays closed")
    func namesOfOneFile() throws {
        let vault = try ClosedVault(modes: ["file": 0]) { writer in
            try writer.file("file", count: 10)
            let entry = try writer.root.encode(ascii("file")).entry
            for number in 0..<60 {
                try writer.root.link(ascii("name \(number)"), to: entry, in: writer.root.descriptor)
            }
        }
        let before = try ClosedVault.tree(vault.path)
        // Those that have opened it and not closed it again: a second one takes the mode of that moment for its own, or
        // finds it closed.
        let root = vault.path
        let inside = Mutex<(threads: Set<pthread_t>, most: Int)>(([], 0))
        let answer = { @Sendable (call: WatchedCall) -> Int32 in
            guard call.kind == .setAttributes, call.path != root, !call.path.contains("/vaultfs.") else { return 0 }
            let isOpening = inside.withLock { inside in
                defer { inside.most = max(inside.most, inside.threads.count) }
                if inside.threads.remove(pthread_self()) != nil { return false }
                return inside.threads.insert(pthread_self()).inserted
            }
            // As if it were held up there.
            if isOpening { usleep(500) }
            return 0
        }
        try CallWatcher.watch(root, includesAttributes: true, answer) {
            let (outcome, problems) = try ClosedVault.rekey(vault.path, threads: 8)
            #expect(outcome.isFinished && problems == [])
        }
        #expect(inside.withLock(\.most) == 1)
        expectSame(try ClosedVault.tree(vault.path), before)
        #expect(try ClosedVault.isClean(vault.path))
    }

    @Test("another's directory: all else is rekeyed, what cannot be is named, and the vault is read and written")
    func anothersDirectory() throws {
        let vault = try ClosedVault(modes: ["other": 0o755, "private": 0o700, "mine/file": 0o444, "mine": 0o555]) {
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
        // The root's names were changed since, those in others' directories not.
        let now = try others(in: vault.path)
        for path in now { try chown(path, to: OrdinaryUser.id) }
        #expect(now.count == 2)
        let expected = try ClosedVault.tree(vault.path)
        #expect(try ClosedVault.rekey(vault.path).outcome.isFinished)
        expectSame(try ClosedVault.tree(vault.path), expected)
        #expect(try ClosedVault.isClean(vault.path))
    }

    /// A directory, and what is in it.
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

    /// The backing directories that are not the vault's owner's.
    private func others(in path: String) throws -> [String] {
        try directories(in: path).filter { path in
            var status = stat()
            return lstat(path, &status) == 0 && status.st_uid == 0
        }
    }

    @Test(
        "an immutable file: its directory keeps its names, all else is rekeyed; the next goes on when it is not any more"
    )
    func immutableFile() throws {
        let vault = try ClosedVault(modes: ["closed": 0o500, "closed/fixed": 0o400]) { writer in
            let directory = try writer.directory("closed")
            for name in ["fixed", Self.long, "other"] { try writer.file(name, count: 10, in: directory) }
        }
        let before = try ClosedVault.tree(vault.path)
        let fixed = try #require(vault.backing["closed/fixed"])
        try Command(["chattr", "+i", fixed]).run().succeeded()
        // Whatever name the directory has by then.
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

    @Test("a root that is closed to writing: refused before anything is changed")
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

    // MARK: Kills, and full disks

    /// One of each that has a mode to be changed for it; small, for it is copied hundreds of times.
    private static func small() throws -> ClosedVault {
        let modes: [String: mode_t] = ["closed": 0, "closed/inner": 0o300, "closed/file": 0o200, "several": 0]
        return try ClosedVault(modes: modes) { writer in
            let directory = try writer.directory("closed")
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

    @Test(
        "Store-37: killed before any call that changes anything: the next opening for writing puts back modes and times"
    )
    func killed() throws {
        let vault = try Self.small()
        let before = try ClosedVault.tree(vault.path)
        try OrdinaryUser.act { try RekeyVault.begin(vault.path) }
        let copies = DirectoryCopies(of: vault.path)
        try copies.takeBeforeEachChange(includingAttributes: true) { () throws in
            #expect(try ClosedVault.rekey(vault.path, threads: 1).outcome.isFinished)
        }
        expectSame(try ClosedVault.tree(vault.path), before)
        #expect(copies.paths.count > 100)
        try killedAgain(copies.paths, before)
        for (call, copy) in copies.paths.enumerated() {
            let isFinished = try !RekeyVault.open(copy).directory.configuration.isRekeying
            try ClosedVault.open(copy)
            // A mount would sweep it, and move the times of its directory.
            let left = try FileManager.default.subpathsOfDirectory(atPath: copy).filter { $0.contains("/vaultfs.tmp.") }
            #expect(left == [], "before call \(call)")
            // The root's are lost where a kill comes between a new vaultfs.json, or vaultfs.modes, and them.
            expectSame(try ClosedVault.tree(copy), before, exceptRootTimes: true, "before call \(call)")
            if call % 20 == 0, !isFinished {
                #expect(try ClosedVault.rekey(copy).outcome.isFinished, "before call \(call)")
                expectSame(try ClosedVault.tree(copy), before, exceptRootTimes: true, "before call \(call)")
                #expect(try ClosedVault.isClean(copy), "before call \(call)")
            }
        }
    }

    /// While the opening puts back what a kill in the middle of a step has left, here the first time the one for links.
    private func killedAgain(_ paths: [String], _ before: [String: RekeyVault.Shown]) throws {
        let first = try #require(
            paths.firstIndex { FileManager.default.fileExists(atPath: $0 + "/vaultfs.rekey") })
        let once = DirectoryCopies(of: paths[first + 12])
        try once.take()
        let twice = DirectoryCopies(of: once.paths[0])
        try twice.takeBeforeEachChange(includingAttributes: true) { () throws in try ClosedVault.open(once.paths[0]) }
        #expect(twice.paths.count > 10)
        for (call, copy) in twice.paths.enumerated() {
            try ClosedVault.open(copy)
            expectSame(try ClosedVault.tree(copy), before, exceptRootTimes: true, "again, before call \(call)")
        }
    }

    @Test("by root: the notes are the owner's, who can open the vault after a kill, and are made empty at every end")
    func notesOfTheOwner() throws {
        let vault = try ClosedVault(modes: ["closed": 0]) {
            try $0.file("file", count: 10, in: try $0.directory("closed"))
        }
        let notes = vault.path + "/vaultfs.modes"
        let seen = Mutex<stat?>(nil)
        let outcome = try RekeyVault.rekey(vault.path) { (point) throws(StoreError) in
            guard point == .replaceEntry else { return }
            var status = stat()
            if lstat(notes, &status) == 0 { seen.withLock { $0 = status } }
            throw .system(.ioError)
        }
        let status = try #require(seen.withLock { $0 })
        #expect(!outcome.isFinished && status.st_uid == OrdinaryUser.id && status.st_size > 0)
        #expect(try VerifierVault.contents(notes).isEmpty)
        // What is changed now stays.
        let closed = try #require(try directories(in: vault.path).first)
        #expect(chmod(closed, 0o750) == 0)
        try ClosedVault.open(vault.path)
        #expect(try ClosedVault.tree(vault.path)["closed/"]?.mode == 0o750)
        #expect(try RekeyVault.notes(vault.path).isEmpty)
        #expect(try ClosedVault.rekey(vault.path).outcome.isFinished)
        #expect(try ClosedVault.isClean(vault.path))
    }

    @Test("ENOSPC: the disk full from any call on: nothing is lost, and with room the rekey comes to its end")
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
        #expect(call > 60)
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
