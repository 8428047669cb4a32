import Foundation
import LinuxSystem
import Testing
import VaultFormat

@testable import VaultStore
@testable import VaultStoreTests

/// Lost directories and names: their objects go to `lost+found`, with all data (Store-24, Store-25).
@Suite struct RepairTreeTests {
    private let manager = FileManager.default

    private func contents(_ tree: [String: [UInt8]]) -> [[UInt8]] {
        tree.values.sorted { $0.lexicographicallyPrecedes($1) }
    }

    private func withoutKept(_ tree: [String: [UInt8]]) -> [String: [UInt8]] {
        tree.filter {
            !$0.key.contains("directory-record-") && !$0.key.contains(".name") && !$0.key.contains("damaged")
                && !$0.key.contains(".entries")
        }
    }

    @Test(
        "Store-24: all objects of a directory whose record is lost are in lost+found",
        arguments: VerifierVault.vectors, [true, false])
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
        // The directory below keeps its names, because it has a record of its own.
        #expect(after.keys.contains { $0.hasPrefix("lost+found/directory-") && $0.hasSuffix("/hello.txt") })
        #expect(after.first { $0.key.contains("directory-record-") }?.value == record)
        // The blobs of the two long names are kept.
        #expect(after.keys.count { $0.hasSuffix(".name") } == 2)
        let lost = try manager.attributesOfItem(atPath: vault.backing("lost+found"))
        #expect(lost[.posixPermissions] as? Int == 0o700)
    }

    @Test("directories lost in one another", arguments: VerifierVault.vectors)
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

    @Test("the root's record lost", arguments: VerifierVault.vectors)
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

    @Test("a name in another directory", arguments: VerifierVault.vectors)
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

    @Test("a directory respelt", arguments: VerifierVault.vectors)
    func aDirectoryRespelt(_ name: String) throws {
        let vault = try VerifierVault(copying: name)
        let before = try vault.tree()
        let documents = try vault.backing("Documents")
        let respelt = vault.path + "/A" + (try vault.entry("Documents").dropFirst())
        try manager.moveItem(atPath: documents, toPath: respelt)
        #expect(try vault.repair() == [])
        #expect(try vault.found() == [])
        let after = try vault.tree()
        #expect(contents(withoutKept(after)) == contents(before))
        #expect(after.keys.contains { $0.hasSuffix("/notes/hello.txt") })
    }

    @Test("a long name's sidecar", arguments: VerifierVault.vectors)
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

    /// A file stays one file if one or both of its names are hidden.
    @Test("several names of one file")
    func severalNamesOfOneFile() throws {
        let vault = try VerifierVault { writer in
            let directory = try writer.directory("d")
            try writer.file("a", count: 100, in: directory)
            try directory.link(Array("b".utf8), to: directory.encode(Array("a".utf8)).entry, in: directory.descriptor)
        }
        try manager.removeItem(atPath: vault.backing("d") + "/vaultfs.dir")
        #expect(try vault.repair() == [])
        #expect(try vault.found() == [])
        #expect(try withoutKept(vault.tree()).count == 1)
    }

    @Test("leftovers", arguments: VerifierVault.vectors)
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

    /// Entries that do not authenticate stay, and so does the directory with them.
    @Test("other programs' files stay", arguments: VerifierVault.vectors)
    func otherProgramsFilesStay(_ name: String) throws {
        let vault = try VerifierVault(copying: name)
        let documents = try vault.backing("Documents")
        let stranger = documents + "/stranger.txt"
        try Data("not ours".utf8).write(to: URL(filePath: stranger))
        try Data("nor this".utf8).write(to: URL(filePath: vault.path + "/stranger.txt"))
        try vault.edit(documents + "/vaultfs.dir") { $0[30] ^= 1 }
        let record = try VerifierVault.contents(documents + "/vaultfs.dir")
        #expect(try vault.repair() == ["Documents: 1 entry is damaged, and stays"])
        #expect(
            try vault.found() == [
                "damaged Documents", "foreign Documents/stranger.txt", "foreign stranger.txt",
            ])
        #expect(try VerifierVault.contents(stranger) == Array("not ours".utf8))
        #expect(try VerifierVault.contents(documents + "/vaultfs.dir") == record)
        #expect(try manager.contentsOfDirectory(atPath: documents).count == 2)
    }

    /// The objects are sparse files, larger than the disk, under vaultfs's own names.
    @Test("Store-44: an object larger than vaultfs makes it is named, and stays", arguments: VerifierVault.vectors)
    func tooLarge(_ name: String) throws {
        let size = Int64(1) << 40
        func shown(_ entry: String, _ largest: Int) -> String {
            "\(entry) has \(size) bytes, where vaultfs writes \(largest) at most, and stays: move it away, or remove it"
        }
        let vault = try VerifierVault(copying: name)
        let record = try vault.backing("Documents") + "/vaultfs.dir"
        let log = vault.path + "/vaultfs.log.damaged"
        try Data().write(to: URL(filePath: log))
        for path in [record, log] { #expect(truncate(path, off_t(size)) == 0) }
        let failures = try vault.repair()
        #expect(failures.count == 2, "\(failures)")
        #expect(failures.contains("Documents: " + shown("vaultfs.dir", 64 << 20)), "\(failures)")
        #expect(failures.contains { $0.hasSuffix(shown("vaultfs.log.damaged", 1 << 30)) }, "\(failures)")
        for path in [record, log] { #expect(try manager.attributesOfItem(atPath: path)[.size] as? Int64 == size) }
        // Everything else in the directory is kept.
        #expect(try manager.contentsOfDirectory(atPath: vault.backing("Documents")) == ["vaultfs.dir"])
    }

    /// A user has put a file, or a directory without a record, at the path of lost+found.
    @Test("the name is taken")
    func theNameIsTaken() throws {
        let vault = try VerifierVault { writer in
            try writer.file("lost+found", count: 10)
            try writer.file("a", count: 100, in: writer.directory("d"))
        }
        let id = try vault.fileID(ofBacking: vault.backing("d/a"))
        try manager.removeItem(atPath: vault.backing("d") + "/vaultfs.dir")
        #expect(try vault.repair() == [])
        #expect(try vault.found() == [])
        #expect(try Set(withoutKept(vault.tree()).keys) == ["lost+found", "lost+found-2/\(id)"])
    }

    /// A foreign directory stays, empty or not. An empty directory of the vault is removed, although only its former
    /// content showed whose it was.
    @Test("a directory that is not ours stays", arguments: VerifierVault.vectors)
    func aDirectoryThatIsNotOursStays(_ name: String) throws {
        let vault = try VerifierVault(copying: name)
        let before = try vault.tree()
        let foreign = vault.path + "/foreign"
        try manager.createDirectory(atPath: foreign + "/in it", withIntermediateDirectories: true)
        for directory in ["Documents/notes", "Documents"] {
            try manager.removeItem(atPath: vault.backing(directory) + "/vaultfs.dir")
        }
        let documents = try vault.backing("Documents")
        try manager.moveItem(atPath: documents, toPath: vault.path + "/ours")
        let left = ["foreign foreign"]
        #expect(try vault.repair() == [])
        #expect(try vault.found() == left)
        #expect(contents(withoutKept(try vault.tree())) == contents(before))
        #expect(manager.fileExists(atPath: foreign + "/in it"))
    }

    @Test(
        "Store-32: a record that is found in a backup restores the names through the list of entries",
        arguments: VerifierVault.vectors)
    func aRecordThatIsFoundLater(_ name: String) throws {
        let vault = try VerifierVault(copying: name)
        let before = try vault.tree()
        let documents = try vault.backing("Documents")
        let keys = try vault.keys(ofDirectory: documents)
        try manager.removeItem(atPath: documents + "/vaultfs.dir")
        #expect(try vault.repair() == [])
        let after = try vault.tree()
        let list = try #require(after.first { $0.key.hasSuffix(".entries") }?.value)
        var named: [String: [UInt8]] = [:]
        for line in list.split(separator: UInt8(ascii: "\n")) {
            let parts = line.split(separator: UInt8(ascii: "\t")).map { Array($0) }
            let here = "lost+found/" + String(decoding: parts[1], as: UTF8.self)
            let found = try #require(
                EntryName.decode(parts[0], sidecarBlob: after[here + ".name"], keys: keys))
            let shown = "Documents/" + String(decoding: found, as: UTF8.self)
            for (path, content) in after where path == here || path.hasPrefix(here + "/") {
                named[shown + path.dropFirst(here.count)] = content
            }
        }
        #expect(named == before.filter { $0.key.hasPrefix("Documents/") })
    }

    /// A repair keeps a directory under a temporary name, with its record, unless it is empty.
    @Test("the content of a temporary directory", arguments: VerifierVault.vectors)
    func contentOfTemporaryDirectory(_ name: String) throws {
        let vault = try VerifierVault(copying: name)
        let temporary = vault.path + "/vaultfs.tmp.1f"
        try manager.moveItem(atPath: vault.backing("Documents"), toPath: temporary)
        #expect(try vault.repair() == ["vaultfs.tmp.1f: it holds something, and stays"])
        #expect(manager.fileExists(atPath: temporary + "/vaultfs.dir"))
    }
}
