import Testing

@testable import VaultCrypto

@Suite struct PrimitiveTests {
    @Test("AES-256, FIPS 197 appendix C.3")
    func aesBlock() throws {
        let context = try CipherContext(Library.loaded().aes256ECB, encrypts: true)
        try context.setKey(secret(0..<32))
        var block = bytes(hex: "00112233445566778899aabbccddeeff")
        try block.withUnsafeMutableBytes { buffer in
            let base = try #require(buffer.baseAddress)
            try context.transform(base, into: base, size: 16)
        }
        #expect(hex(block) == "8ea2b7ca516745bfeafc49904b496089")
    }

    @Test("AES-256-CBC, SP 800-38A sections F.2.5 and F.2.6", arguments: [true, false])
    func cbc(encrypts: Bool) throws {
        let plaintext = bytes(hex: "6bc1bee22e409f96e93d7e117393172aae2d8a571e03ac9c9eb76fac45af8e51")
        let ciphertext = bytes(hex: "f58c4c04d6e5f1ba779eabfb5f7bfbd69cfc4e967edb808d679f777bc6702c7d")
        let context = try CipherContext(Library.loaded().aesCBC(keySize: 32), encrypts: encrypts)
        try context.setKey(secret(bytes(hex: "603deb1015ca71be2b73aef0857d77811f352c073b6108d72d9810a30914dff4")))
        let vector = (0..<16).map { UInt8($0) }
        let input = encrypts ? plaintext : ciphertext
        // Try twice, because between messages a new vector must be enough.
        for _ in 0..<2 {
            var output = [UInt8](repeating: 0, count: 32)
            try context.setVector(vector)
            try context.transform(input, into: &output, size: 32)
            #expect(output == (encrypts ? ciphertext : plaintext))
        }
    }

    @Test("Poly1305, RFC 8439 section 2.5.2; the message's last 8 bytes are the trailer")
    func poly1305() throws {
        let context = try Poly1305Context(Library.loaded().poly1305)
        let key = bytes(hex: "85d6be7857556d337f4452fe42d506a80103808afb0db2fd4abff6af4149f51b")
        let message = Array("Cryptographic Forum Research Group".utf8)
        let trailer = message.suffix(8).reversed().reduce(UInt64(0)) { $0 << 8 | UInt64($1) }
        for _ in 0..<2 {
            var tag = [UInt8](repeating: 0, count: 16)
            let authenticated = message.span.bytes.extracting(droppingLast: 8)
            try context.authenticate(authenticated, trailer: trailer, key: key, into: &tag)
            #expect(hex(tag) == "a8061dc1305136c6c22b8baf0c0127a9")
        }
    }
}
