import FileSystem
import Foundation
import LinuxSystem
import TestSupport
import Testing
import VaultFormat

@testable import VaultStore

/// Files that are damaged on disk, repaired in place (FileFormat, Store-23). Afterwards a verifier finds only damage
/// that cannot be repaired.
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

    @Test(arguments: [true, false])
    func aRecordThatIsOnlyInTheJournal(_ isSealed: Bool) throws {
        let (vault, path, bytes) = try makeVault(isSealed: isSealed)
        try vault.fillSlot(7, file: bytes, chunk: 1, record: Array(bytes[vault.record(1, in: bytes)]))
        try vault.edit(path) { $0[128 + 4128 + 1000] ^= 1 }
        #expect(try vault.remedies() == ["recover f"] + (isSealed ? [] : ["seal f"]))
        try age(path)
        #expect(try vault.repair() == [])
        #expect(try vault.found() == [])
        #expect(try vault.tree() == ["f": Self.content])
        #expect(try isOld(path))
    }

    @Test func slotsThatNothingNeeds() throws {
        let (vault, _, bytes) = try makeVault()
        let record = Array(bytes[vault.record(1, in: bytes)])
        try vault.fillSlot(0, file: bytes, chunk: 1, record: record)
        try vault.fillSlot(63, file: bytes, chunk: 0, record: record, fileID: 1)
        #expect(try vault.remedies() == ["free vaultfs.journal", "free vaultfs.journal"])
        #expect(try vault.repair() == [])
        #expect(try vault.found() == [])
        #expect(try VerifierVault.contents(try vault.backing("f")) == bytes)
    }

    @Test func anUnsealedFile() throws {
        let (vault, path, _) = try makeVault(isSealed: false)
        #expect(try vault.remedies() == ["seal f"])
        try age(path)
        #expect(try vault.repair() == [])
        #expect(try vault.found() == [])
        #expect(try vault.tree() == ["f": Self.content])
        #expect(try isOld(path))
    }

    /// A record that was being appended: the file ends at a page.
    @Test func aTornTail() throws {
        let (vault, path, _) = try makeVault(isSealed: false)
        try vault.edit(path) { $0.removeLast($0.count - 2 * 4096) }
        #expect(try vault.remedies() == ["cutTail f", "seal f"])
        #expect(try vault.repair() == [])
        #expect(try vault.found() == [])
        #expect(try vault.tree() == ["f": Array(Self.content[..<4096])])
    }

    /// No kill leaves this state. The data stays, and nothing authenticates it.
    @Test func aTailThatWasNotTorn() throws {
        let (vault, path, _) = try makeVault(isSealed: false)
        try vault.edit(path) { $0[$0.count - 1] ^= 1 }
        let before = try VerifierVault.contents(path)
        #expect(try vault.remedies() == ["- f", "- f"])
        try vault.repair()
        #expect(try VerifierVault.contents(path) == before)
    }

    @Test(arguments: [1, 33, 5000])
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
        "Store-33: an older header put back, sealed when the file was shorter: data behind that length is kept",
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

    @Test("Store-33: the record of a chunk behind the length exists only in the journal")
    func anOlderHeaderAndTheJournal()
        throws
    {
        let (vault, path, content) = try makeOlderHeader(10_000, 30_000)
        let bytes = try VerifierVault.contents(path)
        try vault.fillSlot(1, file: bytes, chunk: 4, record: Array(bytes[vault.record(4, in: bytes)]))
        try vault.edit(path) { $0[128 + 4 * 4128 + 100] ^= 1 }
        #expect(try vault.repair() == [])
        #expect(try vault.found() == [])
        let id = try vault.fileID(ofBacking: path)
        #expect(try vault.tree()["lost+found/\(id).tail"] == Array(content[10_000...]))
    }

    /// Data that somebody has appended to a file is ignored, however much it is.
    @Test func anEndlessHoleBehindAFile() throws {
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
            let descriptor = try Descriptor(at: writer.store.root.fd, Array(vault.entry("f").utf8), flags: O_RDONLY)
            let file = try EncryptedFile.open(descriptor, in: writer.store)
            try file.put(pattern(count - sealed), at: sealed)
            writer.store.sealer.add(file)
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
        // The chunk that the cut divided stays, and stays an error.
        let left = Self.count - 1000
        #expect(try vault.found() == ["damaged f@8192+\(left - 8192)"])
        #expect(try VerifierVault.contents(path)[128...] == cut[128...])
        #expect(try isOld(path))
        #expect(try vault.repair() == [])
        try vault.write { writer in
            let descriptor = try Descriptor(at: writer.store.root.fd, Array(vault.entry("f").utf8), flags: O_RDONLY)
            let file = try EncryptedFile.open(descriptor, in: writer.store)
            #expect(file.length == UInt64(left))
            #expect(try file.get(8192) == Array(Self.content[..<8192]))
            damage { _ = try file.get(100, at: 8192) }
        }
    }

    @Test func aFileCutBetweenChunks() throws {
        let (vault, path, _) = try makeVault()
        try vault.edit(path) { $0.removeLast($0.count - (128 + 4128)) }
        #expect(try vault.repair() == [])
        #expect(try vault.found() == [])
        #expect(try vault.tree() == ["f": Array(Self.content[..<4096])])
    }

    /// The cut divided the one record that is in the journal, so nothing is lost.
    @Test func aCutThatTheJournalMends() throws {
        let (vault, path, bytes) = try makeVault()
        try vault.fillSlot(3, file: bytes, chunk: 2, record: Array(bytes[vault.record(2, in: bytes)]))
        try vault.edit(path) { $0.removeLast(1000) }
        #expect(try vault.repair() == [])
        #expect(try vault.found() == [])
        #expect(try vault.tree() == ["f": Self.content])
    }

    /// A later record in the journal is no reason to replace the earlier ones with a hole.
    @Test func aCutBeforeWhatTheJournalHas() throws {
        let (vault, path, bytes) = try makeVault()
        try vault.fillSlot(3, file: bytes, chunk: 2, record: Array(bytes[vault.record(2, in: bytes)]))
        try vault.edit(path) { $0.removeLast($0.count - (128 + 4128)) }
        #expect(try vault.repair() == [])
        #expect(try vault.tree() == ["f": Array(Self.content[..<4096])])
        #expect(try vault.found() == ["leftover vaultfs.journal"])
    }

    /// The record that the cut divided is restored, although there is a later one, which is not.
    @Test func aCutThroughOneOfTwoThatTheJournalHas() throws {
        let (vault, path, bytes) = try makeVault()
        for chunk in [1, 2] {
            try vault.fillSlot(
                chunk, file: bytes, chunk: UInt64(chunk), record: Array(bytes[vault.record(UInt64(chunk), in: bytes)]))
        }
        try vault.edit(path) { $0.removeLast($0.count - (128 + 4128 + 1000)) }
        #expect(try vault.repair() == [])
        #expect(try vault.tree() == ["f": Array(Self.content[..<8192])])
        #expect(try vault.found() == ["leftover vaultfs.journal"])
    }

    @Test func damagedChunksStay() throws {
        let (vault, path, _) = try makeVault()
        try vault.edit(path) { $0[128 + 4128 + 100] ^= 1 }
        let before = try VerifierVault.contents(path)
        #expect(try vault.remedies() == ["- f"])
        #expect(try vault.repair() == [])
        #expect(try VerifierVault.contents(path) == before)
    }
}
