import Foundation
import Glibc
import LinuxSystem
import SystemPackage
import TestSupport
import Testing

@testable import VaultCare
@testable import VaultStore
@testable import VaultStoreTests

/// Sealed files with a longer backing file: the content up to the sealed length is intact, whatever follows, and chunks
/// that verify are kept (FileFormat: Store-3, Store-33).
@Suite struct SealedLengthTests {
    /// The data after the sealed length: another program's bytes, a hole, or the file's own chunks, newer than the
    /// header.
    enum Tail: CaseIterable { case bytes, zeros, chunks }

    private static let lengths = [4095, 8192, 10_000]
    private static let added = 6000

    private struct Extended {
        let vault: VerifierVault
        let path: String
        let content: [UInt8]
        /// The plaintext after the sealed length, if any chunk there verifies.
        let tail: [UInt8]?

        func isUnclean(_ isUnclean: Bool) throws {
            try Data((isUnclean ? "unclean\n" : "\n").utf8).write(to: URL(filePath: vault.path + "/vaultfs.lock"))
        }

        func open(in store: Store) throws -> EncryptedFile {
            try FileOpening(try Descriptor(path: FilePath(bytes: Array(path.utf8)), flags: O_RDONLY), in: store).open()
        }

        /// Expects a writing store to open the file at its sealed length. Checks the vault once the file is closed.
        func expectCut(isTailKept: Bool) throws {
            do {
                let file = try open(in: try vault.openStore())
                try file.prepareForWriting()
                #expect(try file.contents() == content)
                #expect(try file.sealInPlace())
                try file.store.log.checkpoint(.end)
            }
            try expectCutBack(isTailKept: isTailKept)
        }

        func expectCutBack(isTailKept: Bool) throws {
            var expected = ["f": content]
            if isTailKept, let tail { expected["lost+found/\(try vault.fileID(ofBacking: path)).tail"] = tail }
            #expect(try vault.tree() == expected)
            #expect(try vault.found() == [])
        }
    }

    private func makeExtended(_ length: Int, _ tail: Tail, logging: Bool = false) throws -> Extended {
        let vault = try VerifierVault { try $0.file("f", count: length) }
        let path = try vault.backing("f")
        let content = try #require(try vault.tree()["f"])
        let sealed = try VerifierVault.contents(path)
        var longer = sealed
        switch tail {
        case .bytes: longer += pattern(Self.added, seed: 5)
        case .zeros: longer += [UInt8](repeating: 0, count: Self.added)
        case .chunks:
            try vault.write { writer in
                let descriptor = try Descriptor(path: FilePath(bytes: Array(path.utf8)), flags: O_RDONLY)
                let file = try FileOpening(descriptor, in: writer.store).open()
                try file.put(pattern(Self.added), at: length)
                writer.store.durability.sealer.add(file)
            }
            longer = try Array(sealed[..<128] + VerifierVault.contents(path)[128...])
            try vault.edit(path) { $0 = sealed }
        }
        if logging { try vault.logChanges([1, 2, 3], of: ["f"]) }
        try vault.edit(path) { $0 = longer }
        return Extended(
            vault: vault, path: path, content: logging ? [1, 2, 3] + content[3...] : content,
            tail: tail == .chunks ? pattern(Self.added) : nil)
    }

    @Test(
        "Store-3: after an unclean end every store and verify see the sealed length", arguments: lengths, Tail.allCases)
    func uncleanEnd(length: Int, tail: Tail) throws {
        let extended = try makeExtended(length, tail)
        let vault = extended.vault
        try extended.isUnclean(true)
        let found = try vault.found()
        #expect(found.count == 1 && found[0].hasPrefix("tornTail f@\(length)+"), "\(found)")
        #expect(try vault.remedies() == ["cutBack f"])
        // A reading store shows the sealed length.
        #expect(try vault.tree() == ["f": extended.content])
        #expect(try extended.open(in: try vault.openStore()).contents() == extended.content)
        try extended.expectCut(isTailKept: false)
    }

    @Test("Store-3: after a clean end what is past the sealed length is damage", arguments: lengths, Tail.allCases)
    func cleanEnd(length: Int, tail: Tail) throws {
        let extended = try makeExtended(length, tail)
        let vault = extended.vault
        try extended.isUnclean(false)
        let found = try vault.found()
        #expect(found.count == 1 && found[0].hasPrefix("damaged f@\(length)+"), "\(found)")
        let file = try extended.open(in: try vault.openStore())
        #expect(file.length > length)
        #expect(try file.get(length + 10) == extended.content)
        damage { _ = try file.get(1, at: length) }
        try extended.expectCut(isTailKept: true)
    }

    @Test("Store-3, Store-40: a conflict copy ends at its sealed length after either end", arguments: Tail.allCases)
    func conflictCopy(tail: Tail) throws {
        let extended = try makeExtended(10_000, tail)
        let vault = extended.vault
        for isUnclean in [true, false] {
            try extended.isUnclean(isUnclean)
            let copies = Store(forConflictCopiesIn: try vault.openStore())
            #expect(try extended.open(in: copies).contents() == extended.content)
        }
        try FileManager.default.moveItem(atPath: extended.path, toPath: extended.path + "~")
        let (findings, totals) = try vault.findings()
        #expect(findings.map(\.kind) == [.conflict, .tornTail])
        #expect(findings.allSatisfy { $0.remedy == nil })
        #expect(totals.damage == 0)
    }

    @Test("Store-33: a repair keeps it after either end", arguments: Tail.allCases, [true, false])
    func repaired(tail: Tail, isUnclean: Bool) throws {
        let extended = try makeExtended(10_000, tail)
        try extended.isUnclean(isUnclean)
        #expect(try extended.vault.repair() == [])
        try extended.expectCutBack(isTailKept: true)
    }

    // The logged entry is of a chunk before the last.
    @Test(
        "Store-3: entries of the log inside the sealed length leave the file sealed", arguments: [8192, 10_000],
        Tail.allCases)
    func logged(length: Int, tail: Tail) throws {
        let extended = try makeExtended(length, tail, logging: true)
        let vault = extended.vault
        try extended.isUnclean(true)
        #expect(try vault.found().contains { $0.hasPrefix("tornTail f@\(length)+") })
        #expect(try vault.findings().totals.damage == 0)
        #expect(try vault.tree() == ["f": extended.content])
        try extended.expectCut(isTailKept: false)
    }

    @Test("Store-4: entries of the log do not make a sealed file that was cut short look whole")
    func loggedAndShorter() throws {
        let vault = try VerifierVault { try $0.file("f", count: 10_000) }
        try vault.logChanges([1, 2, 3], of: ["f"])
        let path = try vault.backing("f")
        try vault.edit(path) { $0.removeLast($0.count - (128 + 4128)) }
        try Data("unclean\n".utf8).write(to: URL(filePath: vault.path + "/vaultfs.lock"))
        #expect(try vault.found().contains { $0.hasPrefix("damaged f@4096+") })
        let directory = try VaultDirectory.open(FilePath(vault.path))
        let reading = try Store(root: directory.root, keyRing: vault.keyRing, cacheSize: 0, isReadOnly: true)
        for store in [reading, try vault.openStore()] {
            damage {
                _ = try FileOpening(
                    try Descriptor(path: FilePath(bytes: Array(path.utf8)), flags: O_RDONLY), in: store
                ).open()
            }
        }
    }

    @Test("Store-3: entries of a later seal counter show that the header is an older one, and unseal the file")
    func loggedAfterALaterSeal() throws {
        let extended = try makeExtended(8192, .chunks)
        let vault = extended.vault
        let older = try VerifierVault.contents(extended.path)[..<128]
        try vault.write { writer in
            let file = try extended.open(in: writer.store)
            try file.put(pattern(5000), at: 8192)
            writer.store.durability.sealer.add(file)
        }
        try vault.logChanges([1, 2, 3], of: ["f"])
        try vault.edit(extended.path) { $0.replaceSubrange(..<128, with: older) }
        try extended.isUnclean(true)
        let whole = [1, 2, 3] + extended.content[3...] + pattern(5000)
        #expect(try vault.tree()["f"] == whole)
        #expect(try extended.open(in: try vault.openStore()).contents() == whole)
        #expect(try vault.tree()["f"] == whole)
    }

    @Test("Store-33: what cannot be kept is not cut off") func notKept() throws {
        let extended = try makeExtended(10_000, .chunks)
        try extended.isUnclean(false)
        let before = try VerifierVault.contents(extended.path)
        let record = extended.vault.path + "/vaultfs.dir"
        do {
            let file = try extended.open(in: try extended.vault.openStore())
            // lost+found needs the root's record, so damage it.
            try extended.vault.edit(record) { $0[30] ^= 1 }
            damage { try file.prepareForWriting() }
            #expect(try VerifierVault.contents(extended.path) == before)
            try extended.vault.edit(record) { $0[30] ^= 1 }
        }
        try extended.expectCut(isTailKept: true)
    }

    @Test("threads that need lost+found at the same time make one")
    func lostAndFoundOnce() throws {
        let vault = try VerifierVault { _ in }
        let store = try vault.openStore()
        for _ in 0..<100 {
            let failures = Monitor<[String]>([])
            DispatchQueue.concurrentPerform(iterations: 4) { number in
                do { try LostAndFound(in: store).keep([1], as: ascii("\(number)")) } catch {
                    failures.access { $0.append("\(error)") }
                }
            }
            #expect(failures.access { $0 } == [])
            #expect(try vault.tree().keys.sorted() == (0..<4).map { "lost+found/\($0)" })
            try FileManager.default.removeItem(atPath: vault.backing("lost+found"))
        }
    }
}
