import Foundation
import Testing
import VaultCare
import VaultFormat

@testable import VaultStoreTests

/// Damage to files of the test vectors: the verifier finds each at its position, and nothing else.
struct VerifierFileTests {
    @Test("undamaged vectors give nothing", arguments: VerifierVault.vectors)
    func undamagedVectorsGiveNothing(_ name: String) throws {
        let vault = try VerifierVault(copying: name)
        let (findings, totals) = try vault.findings()
        #expect(findings == [])
        #expect(totals.directories == 5)
        #expect(totals.files == 19)
        #expect(totals.links == 1)
        #expect(totals.damage == 0)
        #expect(totals.notes == 0)
    }

    @Test("verifying changes nothing", arguments: VerifierVault.vectors)
    func verifyingChangesNothing(_ name: String) throws {
        let vault = try VerifierVault(copying: name)
        func state() throws -> [String] {
            try vault.everything().map { path in
                var status = stat()
                lstat(path, &status)
                return "\(path) \(status.st_size) \(status.st_mtim) \(status.st_ctim)"
            }
        }
        let before = try state()
        _ = try vault.findings()
        #expect(try state() == before)
    }

    @Test("every byte of a header", arguments: VerifierVault.vectors)
    func everyByteOfAHeader(_ name: String) throws {
        let vault = try VerifierVault(copying: name)
        let file = try vault.backing("size-5000")
        for position in 0..<128 {
            try vault.edit(file) { $0[position] ^= 1 }
            #expect(try vault.found() == ["damaged size-5000"], "byte \(position)")
            try vault.edit(file) { $0[position] ^= 1 }
        }
        #expect(try vault.found() == [])
    }

    @Test("a bit of a chunk", arguments: VerifierVault.vectors, [0, 16, 40, -1])
    func aBitOfAChunk(_ name: String, _ position: Int) throws {
        let vault = try VerifierVault(copying: name)
        try vault.edit(vault.backing("size-70001")) { bytes in
            let record = vault.record(2, in: bytes)
            bytes[position < 0 ? record.upperBound + position : record.lowerBound + position] ^= 0x80
        }
        #expect(try vault.found() == ["damaged size-70001@\(2 * vault.chunkSize)+\(vault.chunkSize)"])
    }

    @Test("chunks apart", arguments: VerifierVault.vectors)
    func chunksApart(_ name: String) throws {
        let vault = try VerifierVault(copying: name)
        let c = vault.chunkSize
        try vault.edit(vault.backing("size-70001")) { bytes in
            for chunk in [0, 2, 70001 / c] { bytes[vault.record(chunk, in: bytes).lowerBound + 20] ^= 1 }
        }
        #expect(
            try vault.found()
                == [
                    "damaged size-70001@0+\(c)", "damaged size-70001@\(2 * c)+\(c)",
                    "damaged size-70001@\(70001 / c * c)+\(70001 % c)",
                ].sorted())
    }

    @Test("chunks of a file that two threads check", arguments: [[], [0], [31], [32, 64], [100, 255], [256]])
    func chunksOfALargeFile(_ damaged: [UInt64]) throws {
        let vault = try VerifierVault { try $0.file("large", count: 256 * 4096 + 100) }
        #expect(vault.chunkSize == 4096)
        try vault.edit(vault.backing("large")) { bytes in
            for chunk in damaged { bytes[vault.record(chunk, in: bytes).lowerBound + 20] ^= 1 }
        }
        let (findings, totals) = try vault.findings()
        #expect(
            findings.map(VerifierVault.text)
                == damaged.map { "damaged large@\($0 * 4096)+\($0 == 256 ? 100 : 4096)" })
        #expect(totals.chunks == 257 && totals.bytes == 256 * 4096 + 100)
    }

    @Test("chunks swapped", arguments: VerifierVault.vectors)
    func chunksSwapped(_ name: String) throws {
        let vault = try VerifierVault(copying: name)
        try vault.edit(vault.backing("size-70001")) { bytes in
            let (first, second) = (vault.record(1, in: bytes), vault.record(2, in: bytes))
            let moved = Array(bytes[first])
            bytes.replaceSubrange(first, with: Array(bytes[second]))
            bytes.replaceSubrange(second, with: moved)
        }
        #expect(try vault.found() == ["damaged size-70001@\(vault.chunkSize)+\(2 * vault.chunkSize)"])
    }

    @Test("a chunk of another file", arguments: VerifierVault.vectors)
    func aChunkOfAnotherFile(_ name: String) throws {
        let vault = try VerifierVault(copying: name)
        let other = try VerifierVault.contents(vault.backing("size-70001"))
        try vault.edit(vault.backing("size-8192")) { bytes in
            bytes.replaceSubrange(128..., with: other[128..<bytes.count])
        }
        #expect(try vault.found() == ["damaged size-8192@0+8192"])
    }

    @Test("a chunk zeroed", arguments: VerifierVault.vectors)
    func aChunkZeroed(_ name: String) throws {
        let vault = try VerifierVault(copying: name)
        try vault.edit(vault.backing("size-70001")) { bytes in
            for position in vault.record(3, in: bytes) { bytes[position] = 0 }
        }
        let findings = try vault.findings().findings
        #expect(findings.map(VerifierVault.text) == ["damaged size-70001@\(3 * vault.chunkSize)+\(vault.chunkSize)"])
        #expect(findings.first?.message.contains("without holes") == true)
    }

    @Test("a bit of a hole", arguments: VerifierVault.vectors)
    func aBitOfAHole(_ name: String) throws {
        let vault = try VerifierVault(copying: name)
        var hole: UInt64 = 0
        try vault.edit(vault.backing("sparse-file")) { bytes in
            while !bytes[vault.record(hole, in: bytes)].allSatisfy({ $0 == 0 }) { hole += 1 }
            bytes[vault.record(hole, in: bytes).lowerBound + 100] = 1
        }
        #expect(try vault.found() == ["damaged sparse-file@\(hole * vault.chunkSize)+\(vault.chunkSize)"])
    }

    /// The cuts have these sizes in bytes, to the end of a record and inside one.
    @Test("a sealed file cut", arguments: VerifierVault.vectors, [1, 100, 369 + 32, 4465 + 32, 20_000])
    func aSealedFileCut(_ name: String, _ bytes: Int) throws {
        let vault = try VerifierVault(copying: name)
        try vault.edit(vault.backing("size-70001")) { $0.removeLast(bytes) }
        let left = vault.layout.plaintextLength(
            ofBackingSize: vault.layout.backingSize(ofPlaintextLength: 70001) - UInt64(bytes))
        let lost = left / vault.chunkSize * vault.chunkSize
        let cut = "damaged size-70001@\(lost)+\(70001 - lost)"
        // Some cuts leave a fragment too short for a record.
        #expect(try vault.found().filter { !$0.hasPrefix("leftover") } == [cut])
    }

    @Test("a file without a header", arguments: VerifierVault.vectors, [0, 1, 127])
    func aFileWithoutAHeader(_ name: String, _ size: Int) throws {
        let vault = try VerifierVault(copying: name)
        try vault.edit(vault.backing("Documents/notes/hello.txt")) { $0.removeLast($0.count - size) }
        #expect(try vault.found() == ["damaged Documents/notes/hello.txt"])
    }

    /// The file is extended inside the last record, or by more records. Its sealed part still verifies.
    @Test("a sealed file extended", arguments: VerifierVault.vectors, [1, 500, 50_000])
    func aSealedFileExtended(_ name: String, _ bytes: Int) throws {
        let vault = try VerifierVault(copying: name)
        try vault.edit(vault.backing("size-70001")) { $0 += (0..<bytes).map { UInt8(truncatingIfNeeded: $0) } }
        let length = vault.layout.plaintextLength(
            ofBackingSize: vault.layout.backingSize(ofPlaintextLength: 70001) + UInt64(bytes))
        #expect(try vault.found() == ["damaged size-70001@70001+\(length - 70001)"])
    }

    @Test("a fragment after the last record")
    func aFragmentBehindTheLastRecord() throws {
        let vault = try VerifierVault(copying: "vault-4096")
        try vault.edit(vault.backing("size-8192")) { $0 += [UInt8](repeating: 1, count: 32) }
        #expect(try vault.found() == ["leftover size-8192"])
    }

    /// Every changed byte of a vector gives a finding.
    @Test("any bit anywhere", arguments: VerifierVault.vectors)
    func anyBitAnywhere(_ name: String) throws {
        let vault = try VerifierVault(copying: name)
        let files = try vault.everything().sorted().filter { path in
            var status = stat()
            lstat(path, &status)
            return status.st_mode & S_IFMT == S_IFREG && !path.hasSuffix("vaultfs.json")
        }
        var state: UInt64 = 4711
        func next(_ bound: Int) -> Int {
            state = state &* 6_364_136_223_846_793_005 &+ 1_442_695_040_888_963_407
            return Int(state >> 33) % bound
        }
        for _ in 0..<100 {
            let file = files[next(files.count)]
            let size = try VerifierVault.contents(file).count
            let (position, bit) = (next(size), UInt8(1) << UInt8(next(8)))
            try vault.edit(file) { $0[position] ^= bit }
            #expect(try vault.findings().totals.damage > 0, "\(file), byte \(position), \(bit)")
            try vault.edit(file) { $0[position] ^= bit }
        }
        #expect(try vault.found() == [])
    }
}
