import LinuxSystem
import TestSupport
import Testing
import VaultCrypto
import VaultFormat

/// Random bytes never trap, and are never accepted as valid.
@Suite struct ArbitraryBytesTests {
    let vault: TestVault

    init() throws { vault = try TestVault() }

    @Test("Conventions-5: every parser takes random bytes", arguments: 0..<20)
    func random(seed: Int) throws {
        var generator = SeededGenerator(seed: UInt64(seed))
        let directory = try vault.directory()
        let cipher = try vault.classCipher()
        let codec = try AttributeCodec(key: try SecretBytes.random(count: 64))
        for _ in 0..<200 {
            let bytes = generator.bytes(Int.random(in: 0...300, using: &generator))
            #expect(throws: FormatError.self) { try VaultConfiguration.parse(bytes) }
            #expect(throws: FormatError.self) { try DirectoryRecord.parse(bytes) }
            #expect(throws: FormatError.self) { try FileHeader.parse(bytes) }
            #expect(throws: FormatError.self) { try LinkTarget.decode(ascii("1") + bytes, linkCipher: cipher) }
            #expect(throws: FormatError.self) { try RecoveryKey.parse(bytes) }
            #expect(throws: FormatError.self) { try codec.decrypt(value: bytes, name: ascii("user.a")) }
            #expect(codec.name(ofStored: ascii("user.vaultfs.") + bytes) == nil)
            #expect(throws: FormatError.self) { try codec.decrypt(pack: bytes) }
            #expect(EntryName.decode(bytes, sidecarBlob: bytes, keys: directory) == nil)
            #expect(EntryName.decode(ascii("vaultfs.long.") + bytes, sidecarBlob: bytes, keys: directory) == nil)
            #expect(LogHeader(parsing: Array(bytes.prefix(64))) == nil)
            let head = bytes + [UInt8](repeating: 0, count: 64)
            let entry = head.withUnsafeBytes { LogEntry(parsing: UnsafeRawBufferPointer(rebasing: $0[..<64])) }
            _ = entry?.isValid(ChunkLayout(chunkSize: 4096))
            _ = EntryName.kind(of: bytes)
            _ = Base64.url.decode(bytes)
        }
    }

    @Test("Conventions-5: base64url of random bytes is not accepted as a name, link or attribute", arguments: 0..<5)
    func wellSpelt(seed: Int) throws {
        var generator = SeededGenerator(seed: UInt64(seed))
        let directory = try vault.directory()
        let cipher = try vault.linkCipher()
        for size in 0..<300 {
            let bytes = Base64.url.encode(generator.bytes(size))
            #expect(EntryName.decode(bytes, sidecarBlob: nil, keys: directory) == nil)
            #expect(throws: FormatError.self) { try LinkTarget.decode(ascii("1") + bytes, linkCipher: cipher) }
        }
    }

    @Test("Conventions-5: headers and records with a valid start and random rest", arguments: 0..<5)
    func validStart(seed: Int) throws {
        var generator = SeededGenerator(seed: UInt64(seed))
        let cipher = try vault.classCipher()
        for _ in 0..<300 {
            let zeros = [UInt8](repeating: 0, count: 32)
            let header =
                ascii("VFSF") + [1, 1, 0, 0] + generator.bytes(56) + zeros + generator.bytes(8) + [1]
                + generator.bytes(23)
            let parsed = try FileHeader.parse(header)
            #expect(throws: FormatError.self) { try parsed.unwrapKeys(classCipher: cipher, vault: vault.id) }
            let record = ascii("VFSD") + [1, 1, 0, 0] + zeros[..<8] + generator.bytes(48)
            #expect(throws: FormatError.self) {
                try DirectoryRecord.parse(record).unwrapKeys(classCipher: cipher, vault: vault.id)
            }
        }
    }

    @Test("Conventions-5: a configuration with bytes changed, cut out and repeated at random", arguments: 0..<8)
    func mutations(seed: Int) throws {
        var generator = SeededGenerator(seed: UInt64(seed))
        let test = try TestConfiguration()
        let original = test.configuration.serialized()
        for _ in 0..<200 {
            var bytes = original
            for _ in 0..<Int.random(in: 1...4, using: &generator) {
                let start = Int.random(in: 0..<bytes.count, using: &generator)
                let end = min(bytes.count, start + Int.random(in: 1...20, using: &generator))
                switch Int.random(in: 0..<3, using: &generator) {
                case 0: bytes[start] = UInt8.random(in: 0...255, using: &generator)
                case 1: bytes.removeSubrange(start..<end)
                default: bytes.insert(contentsOf: bytes[start..<end], at: start)
                }
            }
            guard let parsed = try? VaultConfiguration.parse(bytes), parsed != test.configuration else { continue }
            #expect(!parsed.authenticates(masterKey: test.masterKey))
        }
    }
}
