import Testing

@testable import VaultCrypto

@Suite struct CbcDecryptorTests {
    static let plaintext = """
        6bc1bee22e409f96e93d7e117393172a ae2d8a571e03ac9c9eb76fac45af8e51 \
        30c81c46a35ce411e5fbc1191a0a52ef f69f2445df4f9b17ad2b417be66c3710
        """
    /// NIST SP 800-38A, F.2.1, F.2.3 and F.2.5: key and ciphertext.
    static let vectors = [
        (
            "2b7e151628aed2a6abf7158809cf4f3c",
            """
            7649abac8119b246cee98e9b12e9197d 5086cb9b507219ee95db113a917678b2 \
            73bed6b8e3c1743b7116e69e22229516 3ff1caa1681fac09120eca307586e1a7
            """
        ),
        (
            "8e73b0f7da0e6452c810f32b809079e562f8ead2522c6b7b",
            """
            4f021db243bc633d7178183a9fa071e8 b4d9ada9ad7dedf4e5e738763f69145a \
            571b242012fb7ae07fa9baac3df102e0 08b0e27988598881d920a9e64f5615cd
            """
        ),
        (
            "603deb1015ca71be2b73aef0857d77811f352c073b6108d72d9810a30914dff4",
            """
            f58c4c04d6e5f1ba779eabfb5f7bfbd6 9cfc4e967edb808d679f777bc6702c7d \
            39f23369a9d9bacfa530e26304231461 b2eb05e2c39be9fcda6c19078c6a9d1b
            """
        ),
    ]
    let vector = [UInt8](0..<16)
    let decryptor: CbcDecryptor

    init() throws { decryptor = try CbcDecryptor() }

    private func decrypt(_ ciphertext: [UInt8], _ vector: [UInt8], _ key: CbcKey) throws -> [UInt8] {
        var plaintext = [UInt8](repeating: 0xEE, count: ciphertext.count)
        try vector.withUnsafeBytes { vector in
            try ciphertext.withUnsafeBytes { ciphertext in
                try plaintext.withUnsafeMutableBytes { plaintext in
                    guard let vector = vector.baseAddress else { return }
                    try decryptor.decrypt(ciphertext, vector: vector, key: key, into: plaintext)
                }
            }
        }
        return plaintext
    }

    private func key(_ text: String) throws -> CbcKey { try CbcKey(secret(bytes(hex: text))) }

    @Test("NIST SP 800-38A: every key size, one after the other in one decryptor")
    func known() throws {
        let plaintext = bytes(hex: Self.plaintext)
        for (keyText, ciphertext) in Self.vectors + Self.vectors.reversed() {
            let key = try key(keyText)
            let ciphertext = bytes(hex: ciphertext)
            #expect(try decrypt(ciphertext, vector, key) == plaintext)
            // Decrypt the chain's rest, with the previous block as the vector: the same key again, and another vector.
            #expect(try decrypt(Array(ciphertext[32...]), Array(ciphertext[16..<32]), key) == Array(plaintext[32...]))
        }
        #expect(decryptor.blocksDecrypted == 6 * (4 + 2))
    }

    @Test("RFC 3602, case 1")
    func singleBlock() throws {
        let plaintext = try decrypt(
            bytes(hex: "e353779c1079aeb82708942dbe77181a"), bytes(hex: "3dafba429d9eb430b422da802c9fac41"),
            key("06a9214036b8a15b512e03d534120006"))
        #expect(plaintext == Array("Single block msg".utf8))
    }

    @Test("the plaintext may replace the ciphertext in its buffer")
    func inPlace() throws {
        let (keyText, ciphertext) = Self.vectors[0]
        let key = try key(keyText)
        var buffer = bytes(hex: ciphertext)
        try vector.withUnsafeBytes { vector in
            try buffer.withUnsafeMutableBytes { buffer in
                guard let vector = vector.baseAddress else { return }
                try decryptor.decrypt(UnsafeRawBufferPointer(buffer), vector: vector, key: key, into: buffer)
            }
        }
        #expect(buffer == bytes(hex: Self.plaintext))
    }

    @Test("two keys of one size are distinguished")
    func otherKey() throws {
        let ciphertext = bytes(hex: Self.vectors[0].1)
        let right = try key(Self.vectors[0].0)
        let wrong = try CbcKey(secret(0..<16))
        for _ in 0..<2 {
            #expect(try decrypt(ciphertext, vector, wrong) != bytes(hex: Self.plaintext))
            #expect(try decrypt(ciphertext, vector, right) == bytes(hex: Self.plaintext))
        }
    }

    @Test("sizes that are no whole blocks, or differ, are refused")
    func sizesThatAreNoWhole() throws {
        let key = try key(Self.vectors[0].0)
        #expect(throws: CryptoError.self) { try decrypt([1, 2, 3], vector, key) }
        var plaintext = [UInt8](repeating: 0, count: 32)
        #expect(throws: CryptoError.invalidInput("16 bytes of CBC ciphertext into 32")) {
            try vector.withUnsafeBytes { vector in
                try plaintext.withUnsafeMutableBytes { plaintext in
                    guard let base = vector.baseAddress else { return }
                    try decryptor.decrypt(vector, vector: base, key: key, into: plaintext)
                }
            }
        }
        #expect(try decrypt([], vector, key).isEmpty)
        #expect(decryptor.blocksDecrypted == 0)
    }

    @Test("keys of no AES size are refused", arguments: [0, 1, 15, 17, 31, 33, 64])
    func keysOfNoAesSize(size: Int) {
        #expect(throws: CryptoError.invalidInput("an AES key of \(size) bytes")) { try CbcKey(secret(0..<size)) }
    }

    @Test("a forgotten key is refused, though the decryptor had its schedule, and works again once put back")
    func forgottenKeyIsRefused() throws {
        let (keyText, ciphertext) = Self.vectors[2]
        let key = try key(keyText)
        _ = try decrypt(bytes(hex: ciphertext), vector, key)
        let identity = key.identity
        key.forget()
        #expect(key.isForgotten && key.bytes.isForgotten)
        #expect(throws: CryptoError.keyForgotten) { try decrypt(bytes(hex: ciphertext), vector, key) }
        decryptor.forgetKeys()
        #expect(throws: CryptoError.keyForgotten) { try decrypt(bytes(hex: ciphertext), vector, key) }
        let again = try self.key(keyText)
        let other = try CbcKey(SecretBytes.random(count: again.size))
        #expect(!key.refill(from: other) && key.isForgotten, "another key is not taken")
        #expect(key.refill(from: again))
        #expect(![0, identity, again.identity].contains(key.identity))
        #expect(try decrypt(bytes(hex: ciphertext), vector, key) == bytes(hex: Self.plaintext))
    }

    @Test("a decryptor that forgot its schedule sets it anew")
    func decryptorThatForgotItsSchedule() throws {
        let (keyText, ciphertext) = Self.vectors[1]
        let key = try key(keyText)
        for _ in 0..<2 {
            #expect(try decrypt(bytes(hex: ciphertext), vector, key) == bytes(hex: Self.plaintext))
            decryptor.forgetKeys()
        }
    }
}
