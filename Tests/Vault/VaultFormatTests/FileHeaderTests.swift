import Testing
import VaultCrypto
import VaultFormat

@Suite struct FileHeaderTests {
    let vault: TestVault

    init() throws { vault = try TestVault() }

    private func parse(_ bytes: [UInt8]) throws -> FileHeader { try FileHeader.parse(bytes) }

    private func open(_ bytes: [UInt8]) throws -> (FileHeader, FileKeys) {
        let header = try parse(bytes)
        return (header, try header.unwrapKeys(classCipher: try vault.classCipher(), vault: vault.id))
    }

    private func sealedHeader() throws -> [UInt8] {
        var (header, keys) = try FileHeader.make(.complete, classCipher: try vault.classCipher(), vault: vault.id)
        header.length = 0x0102_0304_0506_0708
        header.isSealed = true
        header.isSparse = true
        header.sealCounter = 0x11_2233_4455_6677
        return try header.serialized(keys: keys)
    }

    @Test("Header-1: the bytes are at the positions in the specification")
    func layout() throws {
        let bytes = try sealedHeader()
        #expect(bytes.count == FileHeader.size)
        #expect(Array(bytes[..<8]) == ascii("VFSF") + [1, 1, 0, 0])
        #expect(bytes[64..<96].allSatisfy { $0 == 0 })
        #expect(Array(bytes[96..<104]) == [8, 7, 6, 5, 4, 3, 2, 1])
        #expect(bytes[104] == 3)
        #expect(Array(bytes[105..<112]) == [0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11])
        let id = bytes[8..<16].reversed().reduce(UInt64(0)) { $0 << 8 | UInt64($1) }
        #expect(try parse(bytes).fileID == id)
    }

    @Test("Header-1: a header decodes to the same state and keys", arguments: ProtectionClass.ofFiles)
    func roundTrip(protectionClass: ProtectionClass) throws {
        let cipher = try vault.classCipher(protectionClass)
        let (made, keys) = try FileHeader.make(protectionClass, classCipher: cipher, vault: vault.id)
        #expect(!made.isSealed && !made.isSparse && made.sealCounter == 0 && made.length == 0)
        for (isSealed, isSparse) in [(false, false), (true, false), (false, true), (true, true)] {
            var header = made
            (header.isSealed, header.isSparse, header.sealCounter, header.length) = (isSealed, isSparse, 7, 5000)
            let parsed = try parse(try header.serialized(keys: keys))
            #expect(parsed.protectionClass == protectionClass && parsed.fileID == made.fileID)
            #expect(parsed.isSealed == isSealed && parsed.isSparse == isSparse && parsed.sealCounter == 7)
            #expect(parsed.length == 5000)
            let opened = try parsed.unwrapKeys(classCipher: cipher, vault: vault.id)
            #expect(opened.attributeKey.revealed == keys.attributeKey.revealed)
        }
    }

    @Test("Header-1: keys and state mac follow the specification's derivation")
    func derivation() throws {
        let bytes = try sealedHeader()
        let secret = try vault.classCipher().decryptSecret(Array(bytes[16..<64]), associatedData: [Array(bytes[..<16])])
        let keys = try Hkdf.derive(secret: secret, salt: vault.id.bytes, info: Array("vaultfs 1 file".utf8), count: 176)
        let mac = try HmacSha256.authenticate(Array(bytes[..<112]), key: keys.subrange(80..<112))
        #expect(Array(bytes[112...]) == Array(mac.prefix(16)))
        #expect(try open(bytes).1.attributeKey.revealed == keys.subrange(112..<176).revealed)
    }

    @Test("Header-1: every bit flipped is an error, in parsing or in opening")
    func bitFlips() throws {
        let bytes = try sealedHeader()
        for (bit, damaged) in bytes.withOneBitChanged {
            _ = formatError("bit \(bit)") { _ = try open(damaged) }
        }
    }

    @Test("Header-1: every truncation, and an extra byte, is refused")
    func truncations() throws {
        let bytes = try sealedHeader()
        for count in 0..<bytes.count { _ = formatError("\(count)") { _ = try parse(Array(bytes[..<count])) } }
        _ = formatError { _ = try parse(bytes + [0]) }
    }

    @Test(
        "Header-2: fields that version 1 does not write are refused by name, also under a valid mac",
        arguments: [
            (0, "magic"), (4, "version"), (5, "class"), (6, "wrap"), (7, "epoch"), (64, "reserved"), (95, "reserved"),
            (104, "flags"),
        ])
    func unknownValues(position: Int, word: String) throws {
        var bytes = try sealedHeader()
        bytes[position] = bytes[position] &+ 0x84
        #expect(formatError { _ = try parse(bytes) }?.reason.contains(word) == true)
    }

    @Test("Header-2, Conventions-3: classes 0 and 5 are unknown; the error for a newer version says so")
    func classes() throws {
        var bytes = try sealedHeader()
        for value in [0, 5, 255] as [UInt8] {
            bytes[5] = value
            #expect(formatError { _ = try parse(bytes) }?.kind == .malformed)
        }
        bytes[5] = 1
        bytes[4] = 2
        #expect(formatError { _ = try parse(bytes) }?.kind == .newerVersion)
    }

    @Test("Header-3: an unsealed header keeps the durable length")
    func unsealedLength() throws {
        var bytes = try sealedHeader()
        let length = try parse(bytes).length
        bytes[104] = 2
        #expect(try parse(bytes).length == length && length > 0)
        for position in 96..<104 { bytes[position] = 0 }
        #expect(try parse(bytes).length == 0)
    }

    @Test("Header-4: the seal counter has 56 bits and does not touch the flags")
    func counter() throws {
        var (header, keys) = try FileHeader.make(.none, classCipher: try vault.classCipher(.none), vault: vault.id)
        header.sealCounter = 0xFF_FFFF_FFFF_FFFF
        #expect(try parse(try header.serialized(keys: keys)).sealCounter == 0xFF_FFFF_FFFF_FFFF)
        header.sealCounter = 1 << 56
        let wrapped = try parse(try header.serialized(keys: keys))
        #expect(wrapped.sealCounter == 0 && !wrapped.isSealed && !wrapped.isSparse)
    }

    @Test("Header-5: the error names the wrap or the state mac")
    func whichFailed() throws {
        var bytes = try sealedHeader()
        bytes[20] ^= 1
        #expect(formatError { _ = try open(bytes) }?.reason == "header: file secret is damaged, or another vault's")
        bytes[20] ^= 1
        bytes[97] ^= 1
        let error = formatError { _ = try open(bytes) }
        #expect(error == FormatError(.doesNotAuthenticate, "header: its length is damaged"))
    }

    @Test("Header-5, Keys-1: another vault's or class's key opens nothing")
    func otherKeys() throws {
        let header = try parse(try sealedHeader())
        let other = try TestVault()
        _ = formatError { _ = try header.unwrapKeys(classCipher: try vault.classCipher(.none), vault: vault.id) }
        _ = formatError { _ = try header.unwrapKeys(classCipher: try other.classCipher(), vault: other.id) }
        _ = formatError { _ = try header.unwrapKeys(classCipher: try vault.classCipher(), vault: other.id) }
    }

    @Test("Header-6: ids and secrets are drawn at random for each header")
    func fresh() throws {
        let cipher = try vault.classCipher()
        let made = try (0..<50).map { _ in try FileHeader.make(.complete, classCipher: cipher, vault: vault.id) }
        #expect(Set(made.map(\.header.fileID)).count == 50)
        #expect(!made.contains { $0.header.fileID == 0 })
        #expect(Set(made.map(\.keys.attributeKey.revealed)).count == 50)
    }
}
