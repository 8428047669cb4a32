import Glibc
import LinuxSystem
import SystemPackage
import TestSupport
import Testing
import VaultFormat

@testable import VaultStore

@Suite("A file that was being appended to when the daemon was killed")
struct TornAppendTests {
    private static let acknowledged = (0..<8192).map { UInt8(truncatingIfNeeded: $0 &* 31) }

    /// Makes three unsealed chunks. The third is on disk up to the end of a page.
    private func tornStore(cutAt end: Int) throws -> TestStore {
        let vault = try TestStore()
        try vault.make(Self.acknowledged + [UInt8](repeating: 9, count: 4096), isSealed: false)
        try vault.change { $0.removeLast($0.count - end) }
        return vault
    }

    private func openAfterUncleanEnd(_ vault: TestStore) throws -> Store {
        try vault.write(Array("a writer that did not end\n".utf8), to: "vaultfs.lock")
        let lock = try #require(try WriterLock.acquire(root: vault.root, .exclusive, wait: .zero, isRemote: false))
        return try Store(
            root: FileDescriptor(rawValue: vault.root.fd), keyRing: vault.keyRing, cacheSize: 1 << 20,
            isReadOnly: false, writerLock: lock)
    }

    @Test("Store-6: after an unclean end it ends before the record that was torn, and can be appended to")
    func cut() throws {
        for end in [3 * 4096, 3 * 4096 + 100, 128 + 2 * 4128 + 40] {
            let vault = try tornStore(cutAt: end)
            let store = try openAfterUncleanEnd(vault)
            let file = try vault.reopen(in: store)
            #expect(file.length == 8192)
            try file.put([1, 2, 3], at: 8192)
            #expect(try file.get(8195) == Self.acknowledged + [1, 2, 3])
            #expect(try vault.reopen(in: store).length == 8195)
        }
    }

    @Test("Store-6: a read-only store reads no further")
    func cutToRead() throws {
        let vault = try tornStore(cutAt: 3 * 4096)
        try vault.write(Array("a writer that did not end\n".utf8), to: "vaultfs.lock")
        let file = try vault.reopen(in: try vault.open(isReadOnly: true))
        #expect(try file.contents() == Self.acknowledged)
        #expect(try vault.bytes().count == 3 * 4096)
    }

    @Test("Store-6: after a clean end a last record that does not verify stays an error")
    func damageStays() throws {
        let vault = try tornStore(cutAt: 3 * 4096)
        let file = try vault.reopen(in: try vault.open())
        #expect(file.length > 8192)
        damage { _ = try file.contents() }
    }

    @Test("Store-6: below the length that is known to be durable, damage stays an error after an unclean end")
    func durablePartStays() throws {
        let vault = try TestStore()
        try vault.make(Self.acknowledged)
        do {
            let file = try vault.reopen(in: try vault.open())
            try file.put([UInt8](repeating: 9, count: 4096), at: 8192)
        }
        #expect(try !vault.header().isSealed && vault.header().length == 8192)
        try vault.change { $0[200] ^= 1 }
        let file = try vault.reopen(in: try openAfterUncleanEnd(vault))
        #expect(file.length == 12288)
        damage { _ = try file.contents() }
    }

    @Test("Store-6: a last record that verifies stays")
    func wholeStays() throws {
        let vault = try TestStore()
        let content = Self.acknowledged + [UInt8](repeating: 7, count: 3 * 4096 - 128 - 2 * 4128 - 32)
        try vault.make(content, isSealed: false)
        #expect(try vault.reopen(in: try openAfterUncleanEnd(vault)).contents() == content)
    }

    @Test("Store-6: a sealed file that was being appended to ends at its length after an unclean end")
    func sealedAndLonger() throws {
        let vault = try TestStore()
        try vault.make(Self.acknowledged)
        try vault.change { $0 += pattern(5000) }
        let file = try vault.reopen(in: try openAfterUncleanEnd(vault))
        #expect(try file.contents() == Self.acknowledged)
        #expect(try vault.bytes().count == 128 + 2 * 4128)
    }
}
