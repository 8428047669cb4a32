import FileSystem
import Foundation
import LinuxSystem
import TestSupport
import Testing
import VaultFormat

@testable import VaultStore

/// Slots of the journal that verify nowhere, and what has the journal's name and is none (FileFormat, Journal, Store-31, Store-34).
@Suite(.timeLimit(.minutes(20))) struct RepairJournalTests {
    private static let c = 4096
    private let manager = FileManager.default

    private func makeVault() throws -> (VerifierVault, path: String, bytes: [UInt8]) {
        let vault = try VerifierVault { try $0.file("f", count: 10_000) }
        let path = try vault.backing("f")
        return (vault, path, try VerifierVault.contents(path))
    }

    private func garbage(_ slot: Int) -> [UInt8] { pattern(Self.c + 32, seed: UInt64(slot)) }

    private func writeOver(_ vault: VerifierVault, at offset: UInt64) throws {
        try vault.write { writer in
            let descriptor = try Descriptor(at: writer.store.root.fd, Array(vault.entry("f").utf8), flags: O_RDONLY)
            try writer.write(10, to: try EncryptedFile.open(descriptor, in: writer.store), at: offset)
        }
    }

    @Test func slotsThatVerifyNowhereAreKeptInLostAndFoundAndFreed() throws {
        let (vault, path, bytes) = try makeVault()
        for slot in 0..<64 { try vault.fillSlot(slot, file: bytes, chunk: 1, record: garbage(slot)) }
        try vault.edit(path) { $0[128 + 4128 + 100] ^= 1 }
        let said = damage { try writeOver(vault, at: 0) }
        #expect(said?.contains("64 of 64 slots") == true && said?.contains("verify --repair") == true)
        #expect(try vault.remedies() == ["- f"] + Array(repeating: "keepSlot vaultfs.journal", count: 64))
        #expect(try vault.repair() == [])
        #expect(try vault.found() == ["damaged f@4096+4096"])
        let tree = try vault.tree()
        for slot in 0..<64 {
            let kept = try #require(tree["lost+found/journal-slot-\(slot)"])
            #expect(kept[..<8] == bytes[8..<16])
            #expect(kept[24...] == garbage(slot)[...])
        }
        try writeOver(vault, at: 0)
    }

    /// Its header is damaged: nothing tells what the slot holds.
    @Test func theSlotOfADamagedFile() throws {
        let (vault, path, bytes) = try makeVault()
        let record = Array(bytes[vault.record(1, in: bytes)])
        try vault.fillSlot(5, file: bytes, chunk: 1, record: record)
        try vault.edit(path) { $0[30] ^= 1 }
        #expect(try vault.remedies() == ["- f", "keepSlot vaultfs.journal"])
        #expect(try vault.repair() == [])
        #expect(try vault.found() == ["damaged f"])
        #expect(try VerifierVault.contents(path).count == bytes.count)
    }

    /// Of two files with one id, copies, the one that needs the slot has it.
    @Test(arguments: [["d", "e"], ["e", "d"]]) func theSlotThatOneOfTwoNeeds(_ places: [String]) throws {
        let vault = try VerifierVault { try $0.file("f", count: 10_000, in: $0.directory("d")) }
        let path = try vault.backing("d/f")
        let bytes = try VerifierVault.contents(path)
        try vault.fillSlot(5, file: bytes, chunk: 1, record: Array(bytes[vault.record(1, in: bytes)]))
        let copy = try vault.backing("e")
        try Command(["cp", "-a", try vault.backing("d"), copy]).run().succeeded()
        let entry = try vault.entry("d/f")
        try vault.edit(vault.backing(places[0]) + "/" + entry) { $0[128 + 4128 + 100] ^= 1 }
        try vault.edit(vault.backing(places[1]) + "/" + entry) { $0[30] ^= 1 }
        #expect(try vault.found() == ["damaged \(places[1])/f", "journaled \(places[0])/f@4096+4096"])
    }

    /// `Journal` takes it for one in use, and so does a verifier.
    @Test func aSlotThatIsCutShort() throws {
        let (vault, path, bytes) = try makeVault()
        try vault.fillSlot(63, file: bytes, chunk: 1, record: garbage(1))
        try vault.edit(path) { $0[128 + 4128 + 100] ^= 1 }
        try vault.edit(vault.path + "/vaultfs.journal") { $0.removeLast(100) }
        #expect(try vault.remedies() == ["- f", "keepSlot vaultfs.journal"])
        #expect(try vault.repair() == [])
        #expect(try vault.found() == ["damaged f@4096+4096"])
    }

    // MARK: What has its name

    private static let strays: [@Sendable (String) -> Void] = [
        makeFifo, makeDirectory, makeLink, makeSocket, makeNamed,
    ]

    @Test("Store-31, Store-34: what has the journal's name and is none", arguments: 0..<strays.count)
    func whatHasTheJournalsName(_ kind: Int) throws {
        let (vault, _, _) = try makeVault()
        let before = try vault.tree()
        let journal = vault.path + "/vaultfs.journal"
        if kind < 4 { try manager.removeItem(atPath: journal) }
        Self.strays[kind](journal)
        #expect(try vault.remedies() == ["clearJournal vaultfs.journal"])
        // Read without a journal, and told so, but not written.
        #expect(try vault.tree() == before)
        let said = damage { try vault.write { _ in } }
        #expect(said?.contains("verify --repair") == true)
        #expect(try vault.repair() == [])
        #expect(try vault.found() == [])
        try vault.write { _ in }
        #expect(try vault.tree()["f"] == before["f"])
        let names = try manager.contentsOfDirectory(atPath: vault.path)
        #expect(!names.contains { $0.hasPrefix("vaultfs.journal.") || $0.hasPrefix("vaultfs.tmp.") })
        // The link is a file with its target, the others are there as they were.
        let kept = try vault.backing("lost+found/vaultfs.journal.damaged")
        if kind == 2 { #expect(try vault.tree()["lost+found/vaultfs.journal.damaged"] == ascii("/tmp")) }
        if kind == 0 { #expect(try Command(["test", "-p", kept]).run().exitCode == 0) }
        #expect(access(kept, F_OK) == (kind < 4 ? 0 : -1))
    }

    /// Slots in a file with two names are the journal's.
    @Test func aJournalWithTwoNamesKeepsItsSlots() throws {
        let (vault, path, bytes) = try makeVault()
        try vault.fillSlot(7, file: bytes, chunk: 1, record: Array(bytes[vault.record(1, in: bytes)]))
        try vault.edit(path) { $0[128 + 4128 + 1000] ^= 1 }
        let other = vault.path + "-other"
        defer { unlink(other) }
        try #require(link(vault.path + "/vaultfs.journal", other) == 0)
        let journal = try VerifierVault.contents(other)
        #expect(try vault.repair() == [])
        #expect(try vault.found() == [])
        #expect(try VerifierVault.contents(path) == bytes)
        #expect(try VerifierVault.contents(other) == journal)
    }

    /// Its content stays, and is still found. But the vault can be used.
    @Test func aJournalThatIsADirectoryWithSomethingInIt() throws {
        let (vault, _, _) = try makeVault()
        let journal = vault.path + "/vaultfs.journal"
        try manager.removeItem(atPath: journal)
        try manager.createDirectory(atPath: journal, withIntermediateDirectories: false)
        try Data([1, 2]).write(to: URL(filePath: journal + "/stranger"))
        try Data([3, 4]).write(to: URL(filePath: journal + "/vaultfs.dir"))
        #expect(try vault.repair() == [])
        let moved = try vault.backing("lost+found/vaultfs.journal.damaged")
        #expect(try VerifierVault.contents(moved + "/stranger") == [1, 2])
        #expect(try VerifierVault.contents(moved + "/vaultfs.dir.damaged") == [3, 4])
        try vault.write { _ in }
    }
}

private func makeSocket(_ path: String) {
    let fd = socket(AF_UNIX, Int32(SOCK_STREAM.rawValue), 0)
    defer { close(fd) }
    // A short name: sun_path has 108 bytes.
    let link = "/tmp/vaultfs-\(UInt32.random(in: 0 ... .max))"
    defer { unlink(link) }
    #expect(symlink((path as NSString).deletingLastPathComponent, link) == 0)
    var address = sockaddr_un()
    address.sun_family = sa_family_t(AF_UNIX)
    let name = Array("\(link)/vaultfs.journal".utf8)
    withUnsafeMutableBytes(of: &address.sun_path) { $0.copyBytes(from: name) }
    let bound = withUnsafePointer(to: &address) {
        $0.withMemoryRebound(to: sockaddr.self, capacity: 1) {
            bind(fd, $0, socklen_t(MemoryLayout<sockaddr_un>.size))
        }
    }
    #expect(bound == 0)
}

/// A second name for the file that is there.
private func makeNamed(_ path: String) {
    #expect(link(path, (path as NSString).deletingLastPathComponent + "-other") == 0)
}
