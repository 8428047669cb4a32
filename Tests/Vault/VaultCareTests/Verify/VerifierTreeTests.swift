import Foundation
import Glibc
import LinuxSystem
import SystemPackage
import Testing
import VaultCare
import VaultStore

@testable import VaultStoreTests

/// Damage to directories, names and links of the test vectors: each is found at its position, and nothing else is.
struct VerifierTreeTests {
    private let manager = FileManager.default

    @Test("every byte of a directory record", arguments: VerifierVault.vectors, ["", "empty"])
    func everyByteOfADirectoryRecord(_ name: String, _ directory: String) throws {
        let vault = try VerifierVault(copying: name)
        let record = try vault.backing(directory) + "/vaultfs.dir"
        for position in 0..<64 {
            try vault.edit(record) { $0[position] ^= 1 }
            #expect(try vault.found() == ["damaged \(directory)"], "byte \(position)")
            try vault.edit(record) { $0[position] ^= 1 }
        }
    }

    /// The names in this directory cannot be decrypted, so findings show entries instead. Their objects are verified.
    @Test("files below a damaged record", arguments: VerifierVault.vectors)
    func filesBelowADamagedRecord(_ name: String) throws {
        let vault = try VerifierVault(copying: name)
        let file = try vault.backing("Documents/notes/hello.txt")
        let notes = try vault.entry("Documents/notes")
        try vault.edit(vault.backing("Documents") + "/vaultfs.dir") { $0[30] ^= 1 }
        try vault.edit(file) { $0[140] ^= 1 }
        #expect(try vault.found() == ["damaged Documents", "damaged Documents/\(notes)/hello.txt@0+13"])
        #expect(try vault.findings().totals.files == 19)
    }

    /// The kernel shows such a name after a power cut has torn the long one.
    @Test("a file that has only its short name left, on FAT, is no damage", arguments: VerifierVault.vectors)
    func shortName(_ name: String) throws {
        let vault = try VerifierVault(copying: name)
        let file = try vault.backing("Documents/notes/hello.txt")
        let directory = (file as NSString).deletingLastPathComponent
        try manager.moveItem(atPath: file, toPath: directory + "/ABCDEF~1")
        #expect(try vault.found() == ["leftover Documents/notes/ABCDEF~1"])
        #expect(try vault.findings().totals.damage == 0)
    }

    @Test("a directory record gone", arguments: VerifierVault.vectors)
    func aDirectoryRecordGone(_ name: String) throws {
        let vault = try VerifierVault(copying: name)
        try manager.removeItem(atPath: vault.backing("empty") + "/vaultfs.dir")
        #expect(try vault.found() == ["missing empty"])
    }

    @Test("a directory record of another size", arguments: VerifierVault.vectors)
    func aDirectoryRecordOfAnotherSize(_ name: String) throws {
        let vault = try VerifierVault(copying: name)
        let record = try vault.backing("empty") + "/vaultfs.dir"
        try vault.edit(record) { $0.removeLast() }
        #expect(try vault.found() == ["damaged empty"])
        try vault.edit(record) { $0 += [0, 0] }
        #expect(try vault.found() == ["damaged empty"])
    }

    @Test("a directory record that is a link", arguments: VerifierVault.vectors)
    func aDirectoryRecordThatIsALink(_ name: String) throws {
        let vault = try VerifierVault(copying: name)
        let record = try vault.backing("empty") + "/vaultfs.dir"
        try manager.moveItem(atPath: record, toPath: vault.path + "-record")
        try manager.createSymbolicLink(atPath: record, withDestinationPath: vault.path + "-record")
        #expect(try vault.found() == ["damaged empty"])
    }

    @Test("the root's record elsewhere", arguments: VerifierVault.vectors)
    func theRootsRecordElsewhere(_ name: String) throws {
        let vault = try VerifierVault(copying: name)
        let root = try VerifierVault.contents(vault.path + "/vaultfs.dir")
        try vault.edit(vault.backing("empty") + "/vaultfs.dir") { $0 = root }
        #expect(try vault.found() == ["damaged empty"])
    }

    /// Directory-4: every name in an endless tree of these would authenticate.
    @Test("the record of a directory above", arguments: VerifierVault.vectors)
    func theRecordOfADirectoryAbove(_ name: String) throws {
        let vault = try VerifierVault(copying: name)
        let (outer, inner) = (try vault.backing("Documents"), try vault.backing("Documents/notes"))
        let entry = try vault.entry("Documents/notes")
        try vault.edit(inner + "/vaultfs.dir") { $0 = try VerifierVault.contents(outer + "/vaultfs.dir") }
        try manager.createDirectory(atPath: inner + "/" + entry, withIntermediateDirectories: false)
        try manager.copyItem(atPath: inner + "/vaultfs.dir", toPath: inner + "/" + entry + "/vaultfs.dir")
        #expect(try vault.found() == ["damaged Documents/notes"])
        // The log's recovery looks for files without names, and must fail if it may have missed a place.
        var walk = BackingWalk(try Descriptor(path: FilePath(vault.path), flags: O_RDONLY | O_DIRECTORY))
        var failed: [StoreError] = []
        while walk.nextEntry(onFailure: { failed.append($2) }) != nil {}
        #expect(failed == [OpenDirectory.repeated])
    }

    /// Directory-1 and Names-4: another directory's record has other keys.
    @Test("a record of another directory", arguments: VerifierVault.vectors)
    func aRecordOfAnotherDirectory(_ name: String) throws {
        let vault = try VerifierVault(copying: name)
        let other = try VerifierVault.contents(vault.backing("empty") + "/vaultfs.dir")
        let entry = try vault.entry("Documents/notes/hello.txt")
        try vault.edit(vault.backing("Documents/notes") + "/vaultfs.dir") { $0 = other }
        #expect(try vault.found() == ["hiddenName Documents/notes/\(entry)"])
    }

    @Test("a name in another directory", arguments: VerifierVault.vectors)
    func aNameInAnotherDirectory(_ name: String) throws {
        let vault = try VerifierVault(copying: name)
        let entry = try vault.entry("size-1")
        try manager.moveItem(atPath: vault.backing("size-1"), toPath: vault.backing("empty") + "/" + entry)
        #expect(try vault.found() == ["hiddenName empty/\(entry)"])
    }

    @Test("a name respelt", arguments: VerifierVault.vectors, [0, 21, 42])
    func aNameRespelt(_ name: String, _ position: Int) throws {
        let vault = try VerifierVault(copying: name)
        var entry = Array(try vault.entry("Documents"))
        entry[position] = entry[position] == "A" ? "B" : "A"
        try manager.moveItem(atPath: vault.backing("Documents"), toPath: vault.path + "/" + String(entry))
        #expect(try vault.found() == ["hiddenName \(String(entry))"])
    }

    @Test("files that are not ours", arguments: VerifierVault.vectors)
    func filesThatAreNotOurs(_ name: String) throws {
        let vault = try VerifierVault(copying: name)
        for entry in ["vaultfs.other", "Documents.txt"] {
            try Data(repeating: 1, count: 4).write(to: URL(filePath: vault.path + "/" + entry))
        }
        try manager.copyItem(atPath: vault.path + "/vaultfs.json", toPath: vault.backing("empty") + "/vaultfs.json")
        #expect(
            try vault.found() == [
                "foreign Documents.txt", "foreign empty/vaultfs.json", "foreign vaultfs.other",
            ])
    }

    @Test(
        "a log or record that was set aside, by a mount or a repair",
        arguments: ["vaultfs.log.damaged", "vaultfs.dir.damaged"])
    func setAside(_ entry: String) throws {
        let vault = try VerifierVault(copying: VerifierVault.vectors[0])
        try Data([1]).write(to: URL(filePath: vault.path + "/" + entry))
        let found = try vault.findings().findings
        #expect(found.map(VerifierVault.text) == ["hiddenName \(entry)"])
        #expect(
            found.first?.message == "set aside as damaged, and not yet in lost+found" && found.first?.remedy == .move)
    }

    @Test("other programs' files are notes", arguments: VerifierVault.vectors)
    func otherProgramsFilesAreNotes(_ name: String) throws {
        let vault = try VerifierVault(copying: name)
        let copied = try vault.entry("size-1")
        let long = try #require(
            try manager.contentsOfDirectory(atPath: vault.backing("Documents")).first {
                $0.hasPrefix("vaultfs.long.") && !$0.hasSuffix(".name")
            })
        // Add copies of encrypted files too, in a sync client's own directory and beside the original.
        try manager.createDirectory(atPath: vault.path + "/.stversions", withIntermediateDirectories: false)
        let copies = [
            (copied, ".stversions/\(copied)~20261123-101010"), (copied, "\(copied).sync-conflict-20261123-101010-ABC"),
            (copied, "\(copied) (conflicted copy 2026-11-23 101010)"),
            ("vaultfs.json", "vaultfs.sync-conflict-20261123-101010-ABC.json"),
        ]
        for (source, copy) in copies {
            try manager.copyItem(atPath: "\(vault.path)/\(source)", toPath: "\(vault.path)/\(copy)")
        }
        let documents = try vault.backing("Documents")
        try manager.copyItem(atPath: "\(documents)/\(long)", toPath: "\(documents)/\(long).sync-conflict-20261123")
        let others = [".DS_Store", ".sync_1f.db", "notes.conflict-20261123.txt", "desktop.ini", "Thumbs"]
        for other in others { try Data([1]).write(to: URL(filePath: "\(vault.path)/\(other)")) }
        let (findings, totals) = try vault.findings()
        let conflicts = findings.filter { $0.kind == .conflict }.map { String(decoding: $0.path, as: UTF8.self) }
        #expect(conflicts.count == 3 && conflicts.allSatisfy { $0.contains(" (conflict ") }, "\(conflicts)")
        #expect(conflicts.contains("size-1 (conflict (conflicted copy 2026-11-23 101010))"))
        let expected = [".stversions", copies[3].1] + others
        let foreign = findings.filter { $0.kind != .conflict }.map(VerifierVault.text)
        #expect(foreign.sorted() == expected.map { "foreign \($0)" }.sorted())
        #expect(totals.damage == 0)
        #expect(totals.notes == expected.count + conflicts.count)
        #expect(try vault.repair() == [])
        #expect(try vault.findings().totals.damage == 0)
    }

    /// The file is the vault's own, but its new name is not that of an encrypted name.
    @Test("a name that is no longer one", arguments: VerifierVault.vectors, ["=", "ö", ""])
    func aNameThatIsNoLongerOne(_ name: String, _ replacement: String) throws {
        let vault = try VerifierVault(copying: name)
        let entry = try vault.entry("size-1")
        let changed = entry.dropLast() + replacement
        try manager.moveItem(atPath: "\(vault.path)/\(entry)", toPath: "\(vault.path)/\(changed)")
        #expect(try vault.found() == ["hiddenName \(changed)"])
    }

    @Test("leftovers are notes", arguments: VerifierVault.vectors)
    func leftoversAreNotes(_ name: String) throws {
        let vault = try VerifierVault(copying: name)
        try Data().write(to: URL(filePath: vault.path + "/vaultfs.tmp.1f"))
        try manager.createDirectory(
            atPath: vault.backing("empty") + "/vaultfs.tmp.20", withIntermediateDirectories: false)
        let (findings, totals) = try vault.findings()
        #expect(
            findings.map(VerifierVault.text).sorted() == ["leftover empty/vaultfs.tmp.20", "leftover vaultfs.tmp.1f"])
        #expect(totals.damage == 0)
        #expect(totals.notes == 2)
    }

    @Test("a long name's sidecar", arguments: VerifierVault.vectors)
    func aLongNamesSidecar(_ name: String) throws {
        let vault = try VerifierVault(copying: name)
        let documents = try vault.backing("Documents")
        let entries = try manager.contentsOfDirectory(atPath: documents)
            .filter { $0.hasPrefix("vaultfs.long.") && !$0.hasSuffix(".name") }.sorted()
        try #require(entries.count == 2)
        try vault.edit(documents + "/" + entries[0] + ".name") { $0[5] ^= 1 }
        try manager.removeItem(atPath: documents + "/" + entries[1] + ".name")
        #expect(try vault.found() == ["damaged Documents/\(entries[0])", "missing Documents/\(entries[1])"])
        try manager.removeItem(atPath: documents + "/" + entries[0])
        #expect(
            try vault.found() == ["leftover Documents/\(entries[0]).name", "missing Documents/\(entries[1])"])
    }

    @Test("a long name moved with its sidecar", arguments: VerifierVault.vectors)
    func aLongNameMovedWithItsSidecar(_ name: String) throws {
        let vault = try VerifierVault(copying: name)
        let (documents, empty) = (try vault.backing("Documents"), try vault.backing("empty"))
        let entry = try #require(
            try manager.contentsOfDirectory(atPath: documents).first {
                $0.hasPrefix("vaultfs.long.") && !$0.hasSuffix(".name")
            })
        for moved in [entry, entry + ".name"] {
            try manager.moveItem(atPath: documents + "/" + moved, toPath: empty + "/" + moved)
        }
        #expect(try vault.found() == ["hiddenName empty/\(entry)"])
    }

    /// The arguments concern the class digit, nonce, SIV, and characters outside base64url.
    @Test(
        "a link target changed", arguments: VerifierVault.vectors,
        [(0, "2"), (0, "5"), (3, "A"), (70, "A"), (40, "="), (80, "")])
    func aLinkTargetChanged(_ name: String, _ change: (position: Int, character: String)) throws {
        let vault = try VerifierVault(copying: name)
        let link = try vault.backing("Photos/link")
        let target = Array(try manager.destinationOfSymbolicLink(atPath: link))
        try #require(target.count == 81)
        var changed = String(target[..<change.position])
        changed += String(target[change.position]) == change.character ? "B" : change.character
        changed += String(target[(change.position + 1)...])
        try manager.removeItem(atPath: link)
        try manager.createSymbolicLink(atPath: link, withDestinationPath: changed)
        #expect(try vault.found() == ["damaged Photos/link"])
    }

    /// A verifier must not follow a hostile link in place of a directory.
    @Test("a directory swapped for a link", arguments: VerifierVault.vectors)
    func aDirectorySwappedForALink(_ name: String) throws {
        let vault = try VerifierVault(copying: name)
        let documents = try vault.backing("Documents")
        try manager.moveItem(atPath: documents, toPath: vault.path + "-elsewhere")
        try manager.createSymbolicLink(atPath: documents, withDestinationPath: vault.path + "-elsewhere")
        let (findings, totals) = try vault.findings()
        #expect(findings.map(VerifierVault.text) == ["damaged Documents"])
        #expect(totals.directories == 3)
    }

    @Test("the configuration changed", arguments: VerifierVault.vectors)
    func theConfigurationChanged(_ name: String) throws {
        let vault = try VerifierVault(copying: name)
        try vault.edit(vault.path + "/vaultfs.json") { bytes in
            let text = String(decoding: bytes, as: UTF8.self)
            bytes = Array(text.replacing("\"generation\": 1", with: "\"generation\": 2").utf8)
        }
        #expect(throws: VaultError.self) { try vault.findings() }
    }
}
