import LinuxSystem
import Testing
import VaultCrypto
import VaultFormat

/// Headers of files made while the vault is locked (FileFormat, Inbox).
@Suite struct InboxTests {
    private let vault: TestVault
    private let keys: InboxKeys

    init() throws {
        vault = try TestVault()
        keys = try Self.keys(of: vault)
    }

    private static func keys(of vault: TestVault) throws -> InboxKeys {
        try InboxKeys(
            classKey: try KeyDerivation.classKey(master: vault.masterKey, vault: vault.id, .unlessOpen),
            vault: vault.id)
    }

    private func make(_ inbox: InboxKeys? = nil) throws -> (bytes: [UInt8], keys: FileKeys) {
        let (cipher, ephemeralKey) = try (inbox ?? keys).makeWrap()
        let (header, keys) = try FileHeader.make(
            .unlessOpen, classCipher: cipher, ephemeralKey: ephemeralKey, vault: vault.id)
        return (try header.serialized(keys: keys), keys)
    }

    private func open(_ bytes: [UInt8], _ inbox: InboxKeys? = nil) throws -> FileKeys {
        let header = try FileHeader.parse(bytes)
        let ephemeralKey = try #require(header.ephemeralKey)
        let cipher = try (inbox ?? keys).cipher(ofWrap: ephemeralKey)
        return try header.unwrapKeys(classCipher: cipher, vault: vault.id)
    }

    @Test("Inbox-2: a header with a public key opens with the private one; each has a key of its own")
    func roundTrip() throws {
        let (first, second) = (try make(), try make())
        #expect(first.bytes[5...6] == [2, 1] && first.bytes[64..<96] != second.bytes[64..<96])
        for (bytes, keys) in [first, second] {
            #expect(try open(bytes, Self.keys(of: vault)).attributeKey.revealed == keys.attributeKey.revealed)
        }
    }

    @Test("Inbox-1, Inbox-4: a header that another implementation has made (Reader/test_vaultfs_reader.py)")
    func vector() throws {
        let header = """
            5646534601020100a0a1a2a3a4a5a6a7b49afd369351ad111df2de5b5648d9869b8cd24ddf85a74648321d187653a042\
            64f25e572b64e1b41974884848361f8279a631eede1bf9c98f12032cdeadd0e7a079398fc786b88cc846ec89af85a51a\
            000000000000000000000000000000002476783dd80337ddf44a86233dcac119
            """
        let id = try #require(VaultID(hex: ascii("00112233445566778899aabbccddeeff")))
        let vault = TestVault(id: id, masterKey: .copy(Array(0..<32)))
        let parsed = try FileHeader.parse(try #require(Hexadecimal.decode(ascii(header))))
        let cipher = try Self.keys(of: vault).cipher(ofWrap: try #require(parsed.ephemeralKey))
        let keys = try parsed.unwrapKeys(classCipher: cipher, vault: id)
        let expected = try Hkdf.derive(
            secret: .copy(Array(0x80...0x9f)), salt: id.bytes, info: ascii("vaultfs 1 file"), count: 176)
        #expect(keys.attributeKey.revealed == expected.subrange(112..<176).revealed)
    }

    @Test("Inbox-1: whoever makes headers opens none: not without the private key, not with another's")
    func forgotten() throws {
        keys.forgetPrivateKey()
        let bytes = try make().bytes
        _ = formatError { _ = try open(bytes) }
        _ = formatError { _ = try open(bytes, Self.keys(of: TestVault())) }
        #expect(try open(bytes, Self.keys(of: vault)).isForgotten == false)
        let classKey = try KeyDerivation.classKey(master: vault.masterKey, vault: vault.id, .unlessOpen)
        keys.forgetSenderKey()
        _ = formatError { _ = try make() }
        try keys.restore(classKey: classKey)
        #expect(try open(try make().bytes).isForgotten == false)
    }

    @Test("Inbox-1: without the sender key, who knows the public key makes nothing that opens")
    func otherSender() throws {
        let (inboxKey, bytes) = (try inboxKey(), try make().bytes)
        let ephemeral = try SecretBytes.random(count: 32)
        let ephemeralKey = try X25519.publicKey(of: ephemeral)
        let publicKey = try X25519.publicKey(of: inboxKey)
        let shared = try X25519.sharedSecret(ephemeral, publicKey)
        let info = ascii("vaultfs 1 inbox wrap") + ephemeralKey + publicKey
        let forged = try SivCipher(key: Hkdf.derive(secret: shared, salt: vault.id.bytes, info: info, count: 64))
        let (header, fileKeys) = try FileHeader.make(
            .unlessOpen, classCipher: forged, ephemeralKey: ephemeralKey, vault: vault.id)
        let forgedBytes = try header.serialized(keys: fileKeys)
        #expect(forgedBytes[..<8] == bytes[..<8])
        #expect(formatError { _ = try open(forgedBytes) }?.kind == .doesNotAuthenticate)
    }

    private func inboxKey() throws -> SecretBytes {
        let classKey = try KeyDerivation.classKey(master: vault.masterKey, vault: vault.id, .unlessOpen)
        return try Hkdf.derive(secret: classKey, salt: vault.id.bytes, info: ascii("vaultfs 1 inbox"), count: 64)
            .subrange(0..<32)
    }

    @Test("Header-1, Header-2: every bit flipped is an error")
    func bitFlips() throws {
        let bytes = try make().bytes
        for (bit, damaged) in bytes.withOneBitChanged {
            // RFC 7748, section 5, ignores the highest bit of a public key, but here the bit is part of the wrap key.
            _ = formatError("bit \(bit)") {
                let header = try FileHeader.parse(damaged)
                let cipher =
                    if let ephemeralKey = header.ephemeralKey { try keys.cipher(ofWrap: ephemeralKey) } else {
                        try vault.classCipher(.unlessOpen)
                    }
                _ = try header.unwrapKeys(classCipher: cipher, vault: vault.id)
            }
        }
    }

    @Test("Header-2, Inbox-3: a public key with another class, and a file of class inbox, are refused")
    func classes() throws {
        for protectionClass in [1, 3, 4, 5] as [UInt8] {
            var bytes = try make().bytes
            bytes[5] = protectionClass
            #expect(formatError { _ = try FileHeader.parse(bytes) }?.kind == .malformed)
        }
        var bytes = try make().bytes
        bytes[6] = 2
        #expect(formatError { _ = try FileHeader.parse(bytes) }?.kind == .newerVersion)
        let link = ascii("5") + Base64.url.encode([UInt8](repeating: 7, count: 40))
        #expect(LinkTarget.protectionClass(ofStored: link) == nil)
    }

    @Test("Header-7, Inbox-2: the class key wraps the same secret later, and nothing of the public key stays")
    func rewrapped() throws {
        let (bytes, fileKeys) = try make()
        let header = try FileHeader.parse(bytes)
        let cipher = try keys.cipher(ofWrap: try #require(header.ephemeralKey))
        for newClass in ProtectionClass.ofFiles {
            let after = try header.rewrapped(
                as: newClass, from: cipher, to: try vault.classCipher(newClass)
            ).serialized(keys: fileKeys)
            #expect(after[5...6] == [newClass.rawValue, 0] && after[64..<96].allSatisfy { $0 == 0 })
            #expect(after[8..<16] == bytes[8..<16] && after[96..<112] == bytes[96..<112])
            let opened = try FileHeader.parse(after).unwrapKeys(
                classCipher: try vault.classCipher(newClass), vault: vault.id)
            #expect(opened.attributeKey.revealed == fileKeys.attributeKey.revealed)
        }
    }
}
