import BackingStore
import Foundation
import Testing
import VaultFormat

@testable import VaultStore

/// Directories and names that are lost: what they named is in `lost+found`, and nothing is gone (Store-24, Store-25).
@Suite struct RepairTreeTests {
    private let manager = FileManager.default

    private func contents(_ tree: [String: [UInt8]]) -> [[UInt8]] {
        tree.values.sorted { $0.lexicographicallyPrecedes($1) }
    }

    private func withoutKept(_ tree: [String: [UInt8]]) -> [String: [UInt8]] {
        tree.filter {
            !$0.key.contains("directory-record-") && !$0.key.contains(".name") && !$0.key.contains("damaged")
        }
    }

    @Test(arguments: VerifierVault.vectors, [true, false])
    func aDirectoryRecordLost(_ name: String, _ isMissing: Bool) throws {
        let vault = try VerifierVault(copying: name)
        let before = try vault.tree()
        let documents = try vault.backing("Documents")
        if isMissing {
            try manager.removeItem(atPath: documents + "/vaultfs.dir")
        } else {
            try vault.edit(documents + "/vaultfs.dir") { $0[30] ^= 1 }
        }
        let record = try? VerifierVault.contents(documents + "/vaultfs.dir")
        #expect(try vault.remedies() == ["empty Documents"])
        #expect(try vault.repair() == [])
        #expect(try vault.found() == [])
        let after = try vault.tree()
        #expect(contents(withoutKept(after)) == contents(before))
        #expect(!manager.fileExists(atPath: documents))
        #expect(try vault.remedies() == [])
        // The directory below has its own record, and so its names.
        #expect(after.keys.contains { $0.hasPrefix("lost+found/directory-") && $0.hasSuffix("/hello.txt") })
        #expect(after.first { $0.key.contains("directory-record-") }?.value == record)
        // The blobs of the two long names are kept.
        #expect(after.keys.count { $0.hasSuffix(".name") } == 2)
        let lost = try manager.attributesOfItem(atPath: vault.backing("lost+found"))
        #expect(lost[.posixPermissions] as? Int == 0o700)
    }

    @Test(arguments: VerifierVault.vectors)
    func directoriesLostInOneAnother(_ name: String) throws {
        let vault = try VerifierVault(copying: name)
        let before = try vault.tree()
        let notes = try vault.backing("Documents/notes")
        try vault.edit(notes + "/vaultfs.dir") { $0[5] ^= 1 }
        try vault.edit(vault.backing("Documents") + "/vaultfs.dir") { $0[60] ^= 1 }
        #expect(try vault.repair() == [])
        #expect(try vault.found() == [])
        #expect(contents(withoutKept(try vault.tree())) == contents(before))
    }

    @Test(arguments: VerifierVault.vectors)
    func theRootsRecordLost(_ name: String) throws {
        let vault = try VerifierVault(copying: name)
        let before = try vault.tree()
        try vault.edit(vault.path + "/vaultfs.dir") { $0[30] ^= 1 }
        let record = try VerifierVault.contents(vault.path + "/vaultfs.dir")
        #expect(try vault.remedies() == ["renewRoot "])
        #expect(try vault.repair() == [])
        #expect(try vault.found() == [])
        let after = try vault.tree()
        #expect(contents(withoutKept(after)) == contents(before))
        #expect(after["lost+found/vaultfs.dir.damaged"] == record)
        #expect(after.keys.allSatisfy { $0.hasPrefix("lost+found/") })
    }

    @Test(arguments: VerifierVault.vectors)
    func aNameInAnotherDirectory(_ name: String) throws {
        let vault = try VerifierVault(copying: name)
        let (from, entry) = (try vault.backing("size-1"), try vault.entry("size-1"))
        let id = try vault.fileID(ofBacking: from)
        try manager.moveItem(atPath: from, toPath: vault.backing("empty") + "/" + entry)
        #expect(try vault.remedies() == ["move empty/\(entry)"])
        #expect(try vault.repair() == [])
        #expect(try vault.found() == [])
        #expect(try vault.tree()["lost+found/\(id)"]?.count == 1)
    }

    @Test(arguments: VerifierVault.vectors)
    func aDirectoryRespelt(_ name: String) throws {
        let vault = try VerifierVault(copying: name)
        let before = try vault.tree()
        let documents = try vault.backing("Documents")
        let respelt = vault.path + "/A" + (try vault.entry("Documents").dropFirst())
        try manager.moveItem(atPath: documents, toPath: respelt)
        #expect(try vault.repair() == [])
        #expect(try vault.found() == [])
        let after = try vault.tree()
        #expect(contents(after) == contents(before))
        #expect(after.keys.contains { $0.hasSuffix("/notes/hello.txt") })
    }

    @Test(arguments: VerifierVault.vectors)
    func aLongNamesSidecar(_ name: String) throws {
        let vault = try VerifierVault(copying: name)
        let before = try vault.tree()
        let documents = try vault.backing("Documents")
        let entries = try manager.contentsOfDirectory(atPath: documents)
            .filter { $0.hasPrefix("vaultfs.long.") && !$0.hasSuffix(".name") }.sorted()
        try vault.edit(documents + "/" + entries[0] + ".name") { $0[5] ^= 1 }
        let damaged = try VerifierVault.contents(documents + "/" + entries[0] + ".name")
        try manager.removeItem(atPath: documents + "/" + entries[1] + ".name")
        #expect(try vault.repair() == [])
        #expect(try vault.found() == [])
        let after = try vault.tree()
        #expect(contents(withoutKept(after)) == contents(before))
        #expect(after.filter { $0.key.hasSuffix(".name") }.map(\.value) == [damaged])
    }

    /// A file that has two names, one of which is hidden, or both: it stays one file.
    @Test func severalNamesOfOneFile() throws {
        let vault = try VerifierVault { writer in
            let directory = try writer.directory("d")
            try writer.file("a", count: 100, in: directory)
            try directory.link(Array("b".utf8), to: directory.encode(Array("a".utf8)).entry, in: directory.descriptor)
        }
        try manager.removeItem(atPath: vault.backing("d") + "/vaultfs.dir")
        #expect(try vault.repair() == [])
        #expect(try vault.found() == [])
        #expect(try vault.tree().count == 1)
    }

    @Test(arguments: VerifierVault.vectors)
    func leftovers(_ name: String) throws {
        let vault = try VerifierVault(copying: name)
        let before = try vault.tree()
        try Data().write(to: URL(filePath: vault.path + "/vaultfs.tmp.1f"))
        let empty = try vault.backing("empty")
        try manager.createDirectory(atPath: empty + "/vaultfs.tmp.20", withIntermediateDirectories: false)
        let sidecar = "vaultfs.long." + String(repeating: "A", count: 43) + ".name"
        try Data([1]).write(to: URL(filePath: empty + "/" + sidecar))
        #expect(try vault.repair() == [])
        #expect(try vault.found() == [])
        #expect(try vault.tree() == before)
    }

    /// What does not authenticate stays, and so does the directory around it.
    @Test(arguments: VerifierVault.vectors)
    func whatIsNotOursStays(_ name: String) throws {
        let vault = try VerifierVault(copying: name)
        let documents = try vault.backing("Documents")
        let stranger = documents + "/stranger.txt"
        try Data("not ours".utf8).write(to: URL(filePath: stranger))
        try Data("nor this".utf8).write(to: URL(filePath: vault.path + "/stranger.txt"))
        try vault.edit(documents + "/vaultfs.dir") { $0[30] ^= 1 }
        let record = try VerifierVault.contents(documents + "/vaultfs.dir")
        #expect(try vault.repair() == ["Documents: 1 entry does not authenticate, and stays"])
        #expect(
            try vault.found() == [
                "damaged Documents", "damaged Documents/stranger.txt", "damaged stranger.txt",
                "hiddenName stranger.txt",
            ])
        #expect(try VerifierVault.contents(stranger) == Array("not ours".utf8))
        #expect(try VerifierVault.contents(documents + "/vaultfs.dir") == record)
        #expect(try manager.contentsOfDirectory(atPath: documents).count == 2)
    }

    /// Somebody has put a file, or a directory without a record, where lost+found is to be.
    @Test func theNameIsTaken() throws {
        let vault = try VerifierVault { writer in
            try writer.file("lost+found", count: 10)
            try writer.file("a", count: 100, in: writer.directory("d"))
        }
        let id = try vault.fileID(ofBacking: vault.backing("d/a"))
        try manager.removeItem(atPath: vault.backing("d") + "/vaultfs.dir")
        #expect(try vault.repair() == [])
        #expect(try vault.found() == [])
        #expect(try Set(vault.tree().keys) == ["lost+found", "lost+found-2/\(id)"])
    }

    /// A copy of the vault at each step, as a kill leaves it, is repaired from there.
    @Test(.timeLimit(.minutes(5)), arguments: [true, false])
    func killedAtAnyStep(_ isRoot: Bool) throws {
        let vault = try VerifierVault(copying: "vault-4096")
        let before = contents(try vault.tree())
        try vault.edit(vault.backing("Documents/notes") + "/vaultfs.dir") { $0[30] ^= 1 }
        try vault.edit(vault.backing("Documents") + "/vaultfs.dir") { $0[30] ^= 1 }
        try vault.edit(vault.backing("size-1")) { $0 += [1, 2, 3] }
        if isRoot { try vault.edit(vault.path + "/vaultfs.dir") { $0[30] ^= 1 } }
        var copies: [String] = []
        defer { for copy in copies { try? manager.removeItem(atPath: copy) } }
        var failure: (any Error)?
        try vault.repair { step in
            do {
                copies.append(vault.path + "-\(copies.count)")
                try manager.copyItem(atPath: vault.path, toPath: copies[copies.count - 1])
            } catch { failure = error }
        }
        #expect(failure == nil)
        #expect(copies.count >= 3)
        for copy in copies {
            try manager.removeItem(atPath: vault.path)
            try manager.copyItem(atPath: copy, toPath: vault.path)
            #expect(try vault.repair() == [])
            #expect(try vault.found() == [])
            #expect(contents(withoutKept(try vault.tree())) == before)
        }
    }
}
