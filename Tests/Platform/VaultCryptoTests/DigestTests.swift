import Testing
import VaultCrypto

@Suite struct DigestTests {
    @Test(
        "SHA-256, FIPS 180-4",
        arguments: [
            ("abc", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"),
            ("", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"),
        ])
    func sha256(message: String, digest: String) throws {
        #expect(hex(try Sha256.digest(Array(message.utf8))) == digest)
        #expect(hex(content(try Sha256.digest(secret(Array(message.utf8))))) == digest)
    }

    @Test(
        "HMAC-SHA256, RFC 4231 cases 2 and 6, and an empty message",
        arguments: [
            (
                Array("Jefe".utf8), "what do ya want for nothing?",
                "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843"
            ),
            (
                [UInt8](repeating: 0xaa, count: 131), "Test Using Larger Than Block-Size Key - Hash Key First",
                "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54"
            ),
            (
                [UInt8](repeating: 0x0b, count: 20), "",
                "999a901219f032cd497cadb5e6051e97b6a29ab297bd6ae722bd6062a2f59542"
            ),
        ])
    func hmac(key: [UInt8], message: String, authenticator: String) throws {
        #expect(hex(try HmacSha256.authenticate(Array(message.utf8), key: secret(key))) == authenticator)
    }

    @Test("HMAC refuses an empty key")
    func hmacRefusesAnEmptyKey() {
        #expect(throws: CryptoError.invalidInput("an empty HMAC key")) {
            try HmacSha256.authenticate([1], key: secret([]))
        }
    }

    @Test("constant time comparison")
    func constantTimeComparison() {
        #expect(equalInConstantTime([], []))
        #expect(equalInConstantTime([1, 2, 3], [1, 2, 3]))
        #expect(!equalInConstantTime([1, 2, 3], [1, 2, 4]))
        #expect(!equalInConstantTime([1, 2, 3], [1, 2]))
        #expect(!equalInConstantTime([], [0]))
    }

    @Test("random bytes differ")
    func randomBytesDiffer() throws {
        let first = try SecureRandom.bytes(count: 32)
        #expect(first.count == 32)
        #expect(try SecureRandom.bytes(count: 32) != first)
        #expect(try SecureRandom.integer() != SecureRandom.integer())
        #expect(try SecureRandom.bytes(count: 0).isEmpty)
        #expect(throws: CryptoError.self) { try SecureRandom.bytes(count: -1) }
        var filled = [UInt8](repeating: 0, count: 64)
        try filled.withUnsafeMutableBytes { try SecureRandom.fill($0) }
        #expect(filled != [UInt8](repeating: 0, count: 64))
    }
}
