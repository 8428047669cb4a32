import CLinux
import Foundation
import Testing
import VaultCare
import VaultFormat
import VaultStore

@testable import VaultStoreTests

/// Vaults made by the store: all its objects verify, and damage to them is found.
struct VerifierStoreTests {
    @Test("everything that the store writes verifies", arguments: [4096, 65536])
    func everythingThatStoreWritesVerifies(_ chunkSize: Int) throws {
        let sizes = [0, 1, 15, 16, 4095, 4096, 4097, 200_000]
        let vault = try VerifierVault(chunkSize: chunkSize) { writer in
            for count in sizes { try writer.file("f\(count)", count: count) }
            let directory = try writer.directory("d")
            try directory.makeLink(Array("l".utf8), target: Array("../f1".utf8), owner: nil)
            try directory.makeNode(Array("p".utf8), mode: S_IFIFO | 0o600, device: 0, owner: nil)
            try writer.file(String(repeating: "n", count: 255), count: 10, in: directory)
            let sparse = try writer.file("sparse", count: 5000)
            try writer.setLength(50 << 20, of: sparse)
            try writer.write(10_000, to: sparse, at: 30 << 20)
            let cut = try writer.file("cut", count: 100_000)
            try writer.setLength(5000, of: cut)
            try writer.setAttribute("user.a", "value", key: cut.keys.attributeKey, on: cut.reader)
            try writer.setAttribute("user.b", "", key: writer.root.keys.attributeKey, on: writer.store.root)
        }
        let (findings, totals) = try vault.findings()
        #expect(findings == [])
        #expect(totals.directories == 2)
        #expect(totals.files == 11)
        #expect(totals.links == 1)
        #expect(totals.specialFiles == 1)
        #expect(totals.attributes == 2)
        let others = [10, 50 << 20, 5000]
        #expect(totals.bytes == UInt64((sizes + others).reduce(0, +)))
    }

    @Test("a huge hole takes no time")
    func aHugeHoleTakesNoTime() throws {
        let vault = try VerifierVault { writer in
            try writer.setLength(1 << 42, of: try writer.file("hole", count: 1))
        }
        let (findings, totals) = try vault.findings()
        #expect(findings == [])
        #expect(totals.bytes == 1 << 42)
    }

    /// Punches a hole into the backing file of a file without holes.
    @Test("a hole that is none")
    func aHoleThatIsNone() throws {
        let vault = try VerifierVault { try $0.file("f", count: 1 << 20) }
        let file = try vault.backing("f")
        let fd = open(file, O_RDWR)
        defer { close(fd) }
        let mode = linux_FALLOC_FL_PUNCH_HOLE | linux_FALLOC_FL_KEEP_SIZE
        try #require(linux_fallocate(fd, mode, 128 + 20 * 4128, 100 * 4128) == 0)
        #expect(try vault.found() == ["damaged f@\(20 * 4096)+\(100 * 4096)"])
    }

    @Test("several names of a file are one finding")
    func severalNamesOfAFileAreOneFinding() throws {
        let vault = try VerifierVault { writer in
            try writer.file("a", count: 10)
            try writer.root.link(
                Array("b".utf8), to: writer.root.encode([UInt8(ascii: "a")]).entry, in: writer.root.descriptor)
        }
        try vault.edit(vault.backing("a")) { $0[130] ^= 1 }
        // In use, a file with findings is read again, for their confirmation.
        for isInUse in [false, true] {
            let (findings, totals) = try vault.findings(isInUse: isInUse)
            #expect([["damaged a@0+10"], ["damaged b@0+10"]].contains(findings.map(VerifierVault.text)))
            #expect(totals.files == 2)
        }
    }

    @Test("an unsealed file is a note")
    func anUnsealedFileIsANote() throws {
        let vault = try VerifierVault { try $0.file("f", count: 10_000, isSealed: false) }
        #expect(try vault.found() == ["unsealed f"])
        #expect(try vault.findings().totals.damage == 0)
        try vault.edit(vault.backing("f")) { $0.removeLast(100) }
        #expect(try vault.found() == ["damaged f@8192+1708", "unsealed f"])
        try Data("unclean\n".utf8).write(to: URL(filePath: vault.path + "/vaultfs.lock"))
        #expect(try vault.found() == ["tornTail f@8192+1708", "unsealed f"])
    }

    @Test("only the last record of an unsealed file is a tail")
    func onlyTheLastRecordOfAnUnsealedFileIsATail() throws {
        let vault = try VerifierVault { try $0.file("f", count: 10_000, isSealed: false) }
        try vault.edit(vault.backing("f")) { $0[128 + 4128 + 50] ^= 1 }
        #expect(try vault.found() == ["damaged f@4096+4096", "unsealed f"])
    }

    /// The tree has files before and after each subdirectory.
    @Test("a deep tree")
    func aDeepTree() throws {
        let depth = 70
        let vault = try VerifierVault { writer in
            var directory = writer.root
            for level in 0..<depth {
                for name in ["a", "b", "c"] { try writer.file(name, count: level, in: directory) }
                _ = try writer.directory("side", in: directory)
                directory = try writer.directory("d", in: directory)
            }
        }
        #expect(try vault.found() == [])
        #expect(try vault.findings().totals.directories == 2 * depth + 1)
        #expect(try vault.findings().totals.files == 3 * depth)
        var expected: [String] = []
        for level in [3, 50, 69] {
            let path = String(repeating: "d/", count: level) + "b"
            try vault.edit(vault.backing(path)) { $0[140] ^= 1 }
            expected.append("damaged \(path)@0+\(level)")
        }
        #expect(try vault.found() == expected.sorted())
    }

    @Test("a wide directory")
    func aWideDirectory() throws {
        let vault = try VerifierVault { writer in
            for number in 0..<1500 { try writer.file("file \(number)", count: number % 3) }
        }
        try vault.edit(vault.backing("file 1000")) { $0[20] ^= 1 }
        #expect(try vault.found() == ["damaged file 1000"])
        #expect(try vault.findings().totals.files == 1500)
    }
}
