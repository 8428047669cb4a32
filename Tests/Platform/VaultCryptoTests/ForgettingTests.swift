import Testing

@testable import VaultCrypto

/// Forgotten keys and their ciphers, and restored keys.
@Suite struct ForgettingTests {
    let chunkKeys: ChunkKeys
    let derivedAnew: ChunkKeys

    init() throws {
        let key = try SecretBytes.random(count: 80)
        let make = {
            ChunkKeys(cipherKey: key.subrange(0..<32), macKey: key.subrange(32..<64), macR: key.subrange(64..<80))
        }
        chunkKeys = make()
        derivedAnew = make()
    }

    @Test("forgotten bytes are refused by every operation")
    func forgottenBytesAreRefused() throws {
        let key = try SecretBytes.random(count: 64)
        let cipher = try SivCipher(key: key)
        key.forget()
        #expect(key.isForgotten)
        #expect(throws: CryptoError.keyForgotten) { try HmacSha256.authenticate([1], key: key) }
        #expect(throws: CryptoError.keyForgotten) {
            try Hkdf.derive(secret: key, salt: [1], info: Array("x".utf8), count: 32)
        }
        #expect(throws: CryptoError.keyForgotten) {
            try Scrypt.derive(passphrase: key, salt: [1], logN: 1, r: 1, p: 1, count: 32)
        }
        #expect(throws: CryptoError.keyForgotten) { try SivCipher(key: key) }
        #expect(throws: CryptoError.keyForgotten) { try cipher.encryptSecret(key, associatedData: []) }
    }

    @Test("to read forgotten bytes all the same is a defect")
    func toReadForgottenBytesAll() async {
        await #expect(processExitsWith: .failure) {
            let key = try SecretBytes.random(count: 32)
            key.forget()
            key.withUnsafeBytes { _ in }
        }
    }

    @Test("bytes put back are those of before")
    func bytesPutBackAreThose() {
        let key = secret(pattern(32))
        key.forget()
        key.refill(from: secret(pattern(32)))
        #expect(!key.isForgotten)
        #expect(content(key) == pattern(32))
    }

    @Test("a SIV cipher without a key throws, and works again with one")
    func sivCipherWithoutKeyThrows() throws {
        let key = secret(0..<64)
        let cipher = try SivCipher(key: key)
        let sealed = try cipher.encrypt([1, 2, 3], associatedData: [])
        cipher.forget()
        cipher.forget()
        #expect(throws: CryptoError.keyForgotten) { try cipher.encrypt([1, 2, 3], associatedData: []) }
        #expect(throws: CryptoError.keyForgotten) { try cipher.decrypt(sealed, associatedData: []) }
        #expect(throws: CryptoError.keyForgotten) { try cipher.decryptSecret(sealed, associatedData: []) }
        #expect(throws: CryptoError.self) { try cipher.rekey(secret(0..<32)) }
        #expect(throws: CryptoError.keyForgotten) { try cipher.decrypt(sealed, associatedData: []) }
        try cipher.rekey(key)
        #expect(try cipher.encrypt([1, 2, 3], associatedData: []) == sealed)
        #expect(try cipher.decrypt(sealed, associatedData: []) == [1, 2, 3])
    }

    @Test("messages under way while a SIV cipher forgets are whole, or refused")
    func messagesUnderWayWhileSiv() async throws {
        let key = secret(0..<64)
        let cipher = try SivCipher(key: key)
        let sealed = try cipher.encrypt(pattern(200), associatedData: [[7]])
        try await withThrowingTaskGroup(of: Bool.self) { group in
            for _ in 0..<4 {
                group.addTask {
                    for _ in 0..<1000 {
                        do throws(CryptoError) {
                            guard try cipher.encrypt(pattern(200), associatedData: [[7]]) == sealed else {
                                return false
                            }
                        } catch {
                            guard error == .keyForgotten else { return false }
                        }
                    }
                    return true
                }
            }
            for _ in 0..<500 {
                cipher.forget()
                try cipher.rekey(key)
            }
            for try await isRight in group { #expect(isRight) }
        }
    }

    @Test("a chunk cipher does not go on with the schedules of forgotten keys")
    func chunkCipherDoesNotGo() throws {
        let cipher = try ChunkCipher()
        let records = try seal(pattern(5000), firstChunkIndex: 0, chunkSize: 4096, cipher, chunkKeys)
        chunkKeys.forget()
        #expect(throws: CryptoError.keyForgotten) {
            try seal(pattern(5000), firstChunkIndex: 0, chunkSize: 4096, cipher, chunkKeys)
        }
        #expect(throws: CryptoError.keyForgotten) {
            try open(records, firstChunkIndex: 0, chunkSize: 4096, length: 5000, cipher, chunkKeys)
        }
        // An object without keys must behave the same.
        #expect(throws: CryptoError.keyForgotten) {
            try open(records, firstChunkIndex: 0, chunkSize: 4096, length: 5000, try ChunkCipher(), chunkKeys)
        }
    }

    @Test("a chunk cipher reads on with the keys put back")
    func chunkCipherReads() throws {
        let cipher = try ChunkCipher()
        let records = try seal(pattern(5000), firstChunkIndex: 0, chunkSize: 4096, cipher, chunkKeys)
        let identity = chunkKeys.identity
        chunkKeys.forget()
        cipher.forgetKeys()
        chunkKeys.refill(from: derivedAnew)
        #expect(![0, identity, derivedAnew.identity].contains(chunkKeys.identity))
        let opened = try open(records, firstChunkIndex: 0, chunkSize: 4096, length: 5000, cipher, chunkKeys)
        #expect(opened == (2, pattern(5000)))
    }

    @Test("a chunk cipher without keys seals and opens once it has some")
    func chunkCipherWithoutKeysSeals() throws {
        let cipher = try ChunkCipher()
        cipher.forgetKeys()
        let records = try seal(pattern(100), firstChunkIndex: 0, chunkSize: 4096, cipher, chunkKeys)
        cipher.forgetKeys()
        let opened = try open(records, firstChunkIndex: 0, chunkSize: 4096, length: 100, cipher, chunkKeys)
        #expect(opened == (1, pattern(100)))
    }
}
