import Foundation
import LinuxSystem
import TestSupport
import Testing

@testable import VaultStore
@testable import VaultStoreTests

/// Files damaged on disk and repaired in place (FileFormat, Store-23). Afterwards a verifier finds only unrepairable
/// damage.
@Suite struct RepairFileTests {
    private static let count = 10_000
    private static let content = (0..<count).map { UInt8(truncatingIfNeeded: $0 &* 31 &+ 7) }
    private static let old = Date(timeIntervalSince1970: 1_000_000_000)

    private func makeVault(isSealed: Bool = true) throws -> (VerifierVault, path: String, bytes: [UInt8]) {
        let vault = try VerifierVault { try $0.file("f", count: Self.count, isSealed: isSealed) }
        let path = try vault.backing("f")
        try age(path)
        return (vault, path, try VerifierVault.contents(path))
    }

    private func age(_ path: String) throws {
        try FileManager.default.setAttributes([.modificationDate: Self.old], ofItemAtPath: path)
    }

    private func isOld(_ path: String) throws -> Bool {
        try FileManager.default.attributesOfItem(atPath: path)[.modificationDate] as? Date == Self.old
    }

    @Test("an unsealed file")
    func anUnsealedFile() throws {
        let (vault, path, _) = try makeVault(isSealed: false)
        #expect(try vault.remedies() == ["seal f"])
        try age(path)
        #expect(try vault.repair() == [])
        #expect(try vault.found() == [])
        #expect(try vault.tree() == ["f": Self.content])
        #expect(try isOld(path))
    }

    /// The repair puts the other files' changes in place, and keeps the log.
    @Test("a header that does not authenticate with changes in the log")
    func aHeaderThatDoesNotAuthenticateWithChangesInTheLog() throws {
        let vault = try VerifierVault { writer in
            for name in ["f", "g"] { try writer.file(name, count: Self.count) }
        }
        try vault.logChanges([1, 2, 3], of: ["f", "g"])
        try vault.edit(try vault.backing("f")) { $0[70] ^= 1 }
        #expect(damage { _ = try vault.openStore() }?.contains("vaultfs verify --repair") == true)
        #expect(try vault.remedies().contains("clearLog vaultfs.log"))
        let failures = try vault.repair()
        #expect(failures == [])
        let remedies = try vault.remedies()
        #expect(!remedies.contains { $0.contains("vaultfs.log") })
        let tree = try vault.tree()
        #expect(tree["g"] == [1, 2, 3] + Self.content[3...])
        #expect(tree.keys.contains("lost+found/vaultfs.log.damaged"))
        _ = try vault.openStore()
    }

    /// The record was being appended at an unclean end.
    @Test("a torn tail")
    func aTornTail() throws {
        let (vault, path, _) = try makeVault(isSealed: false)
        try vault.edit(path) { $0.removeLast($0.count - 2 * 4096) }
        try Data("unclean\n".utf8).write(to: URL(filePath: vault.path + "/vaultfs.lock"))
        #expect(try vault.remedies() == ["cutTail f", "seal f"])
        #expect(try vault.repair() == [])
        #expect(try vault.found() == [])
        #expect(try vault.tree() == ["f": Array(Self.content[..<4096])])
    }

    /// After a clean end such a tail is damage, so its data stays.
    @Test("a tail that was not torn")
    func aTailThatWasNotTorn() throws {
        let (vault, path, _) = try makeVault(isSealed: false)
        try vault.edit(path) { $0[$0.count - 1] ^= 1 }
        let before = try VerifierVault.contents(path)
        #expect(try vault.remedies() == ["- f", "seal f"])
        try vault.repair()
        #expect(try VerifierVault.contents(path)[128...] == before[128...])
    }

    @Test("a file longer than sealed", arguments: [1, 33, 5000])
    func aFileLongerThanSealed(_ more: Int) throws {
        let (vault, path, bytes) = try makeVault()
        try vault.edit(path) { $0 += [UInt8](repeating: 9, count: more) }
        try age(path)
        #expect(try vault.repair() == [])
        #expect(try vault.found() == [])
        #expect(try VerifierVault.contents(path) == bytes)
        #expect(try isOld(path))
        #expect(try vault.tree() == ["f": Self.content])
    }

    @Test(
        "Store-33: an older header put back, sealed when the file was shorter: data past that length is kept",
        arguments: [(10_000, 30_000), (8192, 20_000), (0, 5000), (10_000, 10_001), (4095, 4097), (5000, 8192)])
    func anOlderHeader(_ sealed: Int, _ count: Int) throws {
        let (vault, path, content) = try makeOlderHeader(sealed, count)
        let id = try vault.fileID(ofBacking: path)
        #expect(try vault.remedies() == ["cutBack f"])
        #expect(try vault.repair() == [])
        #expect(try vault.found() == [])
        #expect(
            try vault.tree() == [
                "f": Array(content[..<sealed]), "lost+found/\(id).tail": Array(content[sealed...]),
            ])
        #expect(try vault.repair() == [])
    }

    @Test("Store-33: zeros for chunks that do not verify") func anOlderHeaderAndDamageBehindIt() throws {
        let (vault, path, content) = try makeOlderHeader(10_000, 40_000)
        let id = try vault.fileID(ofBacking: path)
        for chunk in [2, 5, 6] { try vault.edit(path) { $0[128 + chunk * 4128 + 100] ^= 1 } }
        try vault.repair()
        var tail = content
        for chunk in [2, 5, 6] {
            tail.replaceSubrange((chunk * 4096)..<((chunk + 1) * 4096), with: repeatElement(0, count: 4096))
        }
        #expect(try vault.tree()["lost+found/\(id).tail"] == Array(tail[10_000...]))
    }

    /// A repair ignores data appended to a file by others, however much it is.
    @Test("an endless hole after a file")
    func anEndlessHoleBehindAFile() throws {
        let (vault, path, bytes) = try makeVault()
        try #require(truncate(path, 1 << 42) == 0)
        #expect(try vault.repair() == [])
        #expect(try VerifierVault.contents(path) == bytes)
        #expect(try vault.tree() == ["f": Self.content])
    }

    private func makeOlderHeader(_ sealed: Int, _ count: Int) throws -> (VerifierVault, String, [UInt8]) {
        let vault = try VerifierVault { try $0.file("f", count: sealed) }
        let path = try vault.backing("f")
        let older = try VerifierVault.contents(path)[..<128]
        try vault.write { writer in
            let descriptor = try Descriptor(
                at: writer.store.root, Component(Array(vault.entry("f").utf8)), flags: O_RDONLY)
            let file = try FileOpening(descriptor, in: writer.store).open()
            try file.put(pattern(count - sealed), at: sealed)
            writer.store.durability.sealer.add(file)
        }
        let content = try #require(try vault.tree()["f"])
        try vault.edit(path) { $0.replaceSubrange(..<128, with: older) }
        return (vault, path, content)
    }

    @Test("Store-23: a sealed file that is shorter than in its header is sealed at the remaining length")
    func aFileShorterThanSealed() throws {
        let (vault, path, _) = try makeVault()
        try vault.edit(path) { $0.removeLast(1000) }
        #expect(try vault.remedies() == ["sealRest f"])
        let cut = try VerifierVault.contents(path)
        try age(path)
        #expect(try vault.repair() == [])
        // The chunk divided by the cut stays, and stays an error.
        let left = Self.count - 1000
        #expect(try vault.found() == ["damaged f@8192+\(left - 8192)"])
        #expect(try VerifierVault.contents(path)[128...] == cut[128...])
        #expect(try isOld(path))
        #expect(try vault.repair() == [])
        try vault.write { writer in
            let descriptor = try Descriptor(
                at: writer.store.root, Component(Array(vault.entry("f").utf8)), flags: O_RDONLY)
            let file = try FileOpening(descriptor, in: writer.store).open()
            #expect(file.length == UInt64(left))
            #expect(try file.get(8192) == Array(Self.content[..<8192]))
            damage { _ = try file.get(100, at: 8192) }
        }
    }

    @Test("a file cut between chunks")
    func aFileCutBetweenChunks() throws {
        let (vault, path, _) = try makeVault()
        try vault.edit(path) { $0.removeLast($0.count - (128 + 4128)) }
        #expect(try vault.repair() == [])
        #expect(try vault.found() == [])
        #expect(try vault.tree() == ["f": Array(Self.content[..<4096])])
    }

    @Test("damaged chunks stay")
    func damagedChunksStay() throws {
        let (vault, path, _) = try makeVault()
        try vault.edit(path) { $0[128 + 4128 + 100] ^= 1 }
        let before = try VerifierVault.contents(path)
        #expect(try vault.remedies() == ["- f"])
        #expect(try vault.repair() == [])
        #expect(try VerifierVault.contents(path) == before)
    }
}
