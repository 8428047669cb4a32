import Foundation
import Testing
import VaultFormat

/// Vaults written by another implementation, read completely.
@Suite struct VectorTests {
    static let vaults = [("vault-4096", 4096), ("vault-16384", 16384)]

    private func expectedLines(_ name: String) throws -> [String] {
        let url = VectorReader.folder.appending(path: "\(name).expected.tsv")
        return try String(contentsOf: url, encoding: .utf8).split(separator: "\n").map(String.init).sorted()
    }

    @Test(
        "Sizes-1, Names-2, Links-3, Chunks-1, Holes-1: every name, size, target and digest of the vectors",
        arguments: vaults)
    func everything(name: String, chunkSize: Int) throws {
        let reader = try VectorReader(name: name, passphrase: "correct horse")
        #expect(reader.configuration.chunkSize == chunkSize)
        let (lines, expected) = (try reader.lines(), try expectedLines(name))
        #expect(expected.count > 20)
        #expect(lines == expected)
    }

    @Test("Slots-2, Mac-1: the vectors open with their passphrase only, and verify", arguments: vaults)
    func configuration(name: String, chunkSize: Int) throws {
        let bytes = try VectorReader.contents(VectorReader.folder.appending(path: "\(name)/vaultfs.json"))
        let parsed = try VaultConfiguration.parse(bytes)
        #expect(try VaultConfiguration.parse(parsed.serialized()) == parsed)
        #expect(try parsed.unwrapMasterKey(with: try SlotSecret.passphrase(ascii("correct horse\n"))) != nil)
        #expect(try parsed.unwrapMasterKey(with: try SlotSecret.passphrase(ascii("Correct horse"))) == nil)
    }

    /// Returns the bytes of the vectors' file with this plaintext length, and their reader.
    private func backing(ofLength length: UInt64) throws -> (VectorReader, [UInt8]) {
        let reader = try VectorReader(name: "vault-4096", passphrase: "correct horse")
        let size = reader.layout.backingSize(ofPlaintextLength: length)
        for url in try FileManager.default.contentsOfDirectory(at: reader.root, includingPropertiesForKeys: nil) {
            guard EntryName.kind(of: ascii(url.lastPathComponent)) == .name, !url.hasDirectoryPath else { continue }
            let bytes = try VectorReader.contents(url)
            if bytes.count == Int(size) { return (reader, bytes) }
        }
        throw VectorReader.Damaged(what: "no file of \(length) bytes")
    }

    @Test("Chunks-1: a bit flipped, chunks exchanged and a chunk of another file are errors")
    func damagedChunks() throws {
        let (reader, bytes) = try backing(ofLength: 8192)
        #expect(try reader.file(bytes).plaintext.count == 8192)
        for position in [128, 143, 144, 4000, 4239, 4240, 4255, 4256, 8383] {
            var damaged = bytes
            damaged[position] ^= 0x40
            #expect(throws: VectorReader.Damaged.self) { try reader.file(damaged) }
        }
        let exchanged = Array(bytes[..<128] + bytes[4256...] + bytes[128..<4256])
        #expect(throws: VectorReader.Damaged.self) { try reader.file(exchanged) }
        let (_, other) = try backing(ofLength: 8692)
        let foreign = Array(bytes[..<128] + other[128..<4256] + bytes[4256...])
        #expect(throws: VectorReader.Damaged.self) { try reader.file(foreign) }
        let cut = Array(bytes[..<4256])
        #expect(throws: VectorReader.Damaged.self) { try reader.file(cut) }
    }

    @Test("Holes-1: a zeroed record is an error without the sparse flag, partial or not")
    func zeroedChunks() throws {
        let (reader, bytes) = try backing(ofLength: 5000)
        for range in [128..<4256, 4256..<5192] {
            var damaged = bytes
            for position in range { damaged[position] = 0 }
            #expect(throws: VectorReader.Damaged.self) { try reader.file(damaged) }
        }
    }

}
