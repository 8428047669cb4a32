import Foundation
import LinuxSystem
import TestSupport
import Testing

@testable import VaultStore
@testable import VaultStoreTests

/// Repairs stopped before each of their changing calls: the next repair completes them, and all data is kept.
@Suite(.timeLimit(.minutes(60))) struct RepairReplayTests {
    private let manager = FileManager.default

    /// Returns everything in the vault except a repair's notes, once each because `lost+found` may have a copy twice.
    private func contents(_ vault: VerifierVault) throws -> Set<[UInt8]> {
        let notes = ["directory-record-", ".name", "damaged", ".entries", "vaultfs.log"]
        return Set(try vault.tree().filter { file in !notes.contains { file.key.contains($0) } }.values)
    }

    /// Makes damage of every kind. A repair leaves only the unrepairable.
    private func damage(_ vault: VerifierVault, isRoot: Bool) throws {
        try manager.removeItem(atPath: vault.backing("Documents/notes") + "/vaultfs.dir")
        try vault.edit(vault.backing("Documents") + "/vaultfs.dir") { $0[30] ^= 1 }
        try vault.edit(vault.backing("size-1")) { $0 += [1, 2, 3] }
        try Data(pattern(5000)).write(to: URL(filePath: vault.path + "/vaultfs.log"))
        try Data().write(to: URL(filePath: vault.path + "/vaultfs.tmp.1f"))
        try manager.moveItem(
            atPath: vault.backing("size-15"), toPath: vault.backing("empty") + "/" + vault.entry("size-15"))
        if isRoot { try vault.edit(vault.path + "/vaultfs.dir") { $0[30] ^= 1 } }
    }

    private func replay(_ vault: VerifierVault, leaving expected: Set<[UInt8]>, atLeast calls: Int) throws {
        let copies = DirectoryCopies(of: vault.path)
        try copies.takeBeforeEachChange { () throws in #expect(try vault.repair() == []) }
        #expect(copies.paths.count >= calls)
        #expect(try contents(vault) == expected)
        for (call, copy) in copies.paths.enumerated() {
            try copies.putBack(copy)
            #expect(try vault.repair() == [], "before call \(call)")
            #expect(try vault.found() == [], "before call \(call)")
            #expect(try contents(vault) == expected, "before call \(call)")
        }
    }

    @Test("directories names files and slots", arguments: [true, false])
    func directoriesNamesFilesAndSlots(_ isRoot: Bool) throws {
        let vault = try VerifierVault(copying: "vault-4096")
        let before = try contents(vault)
        try damage(vault, isRoot: isRoot)
        try replay(vault, leaving: before, atLeast: 30)
    }

    /// The disk is full from any call on, as the repair reports. With space again it completes, and all data is kept.
    @Test("a full disk")
    func aFullDisk() throws {
        let vault = try VerifierVault(copying: "vault-4096")
        let before = try contents(vault)
        try damage(vault, isRoot: false)
        let copies = DirectoryCopies(of: vault.path)
        try copies.take()
        var call = 0
        var wasFull = true
        while wasFull {
            try copies.putBack(copies.paths[0])
            wasFull = CallWatcher.fullDisk(in: vault.path, from: call) { _ = try? vault.repair() }
            #expect(try vault.repair() == [], "full at call \(call)")
            #expect(try vault.found() == [], "full at call \(call)")
            #expect(try contents(vault) == before, "full at call \(call)")
            call += 1
        }
        #expect(call > 20)
    }

    @Test("a file longer than its header says")
    func aFileLongerThanItsHeaderSays() throws {
        let vault = try VerifierVault { try $0.file("f", count: 10_000) }
        let path = try vault.backing("f")
        let older = try VerifierVault.contents(path)[..<128]
        try vault.write { writer in
            let descriptor = try Descriptor(
                at: writer.store.root, Component(Array(vault.entry("f").utf8)), flags: O_RDONLY)
            try writer.write(30_000, to: try FileOpening(descriptor, in: writer.store).open(), at: 10_000)
        }
        let whole = try #require(try vault.tree()["f"])
        try vault.edit(path) { $0.replaceSubrange(..<128, with: older) }
        let copies = DirectoryCopies(of: vault.path)
        try copies.takeBeforeEachChange { () throws in #expect(try vault.repair() == []) }
        for copy in copies.paths {
            try copies.putBack(copy)
            #expect(try vault.repair() == [])
            #expect(try vault.found() == [])
            let tree = try vault.tree()
            // If killed while it copied the tail, the first repair has left a part of it beside the whole.
            let file = try #require(tree["f"])
            // If killed between the unsealing and the cut, it has left the file itself whole.
            #expect(file == whole || tree.contains { $0.key.contains(".tail") && file + $0.value == whole })
        }
    }

    @Test("Store-31, Store-34: a log that is a directory goes to lost+found") func aLogThatIsADirectory() throws {
        let vault = try VerifierVault { try $0.file("f", count: 10_000) }
        let before = try contents(vault)
        try? manager.removeItem(atPath: vault.path + "/vaultfs.log")
        try manager.createDirectory(atPath: vault.path + "/vaultfs.log", withIntermediateDirectories: false)
        try replay(vault, leaving: before, atLeast: 8)
    }
}
