import CLinux
import Testing

@testable import VaultCrypto

/// Keys and plaintext of other programs' ciphertext. Once forgotten, they must be gone from memory.
@Suite struct CbcMemoryTests {
    @Test("a CBC decryptor's key schedule, and that of the key size before")
    func cbcDecryptorsKeySchedule() async {
        await #expect(processExitsWith: .success) {
            let scanner = try MemoryScanner()
            let secret = try SecretBytes.random(count: 32)
            scanner.addKeySchedule("key", secret)
            let key = try CbcKey(secret)
            let small = try CbcKey(.random(count: 16))
            let decryptor = try CbcDecryptor()
            try decrypt(decryptor, key)
            #expect(try scanner.found().contains("key, round key 14"))
            // Another key size needs another context.
            try decrypt(decryptor, small)
            #expect(try !scanner.found().contains("key, round key 14"))
            try decrypt(decryptor, key)
            key.forget()
            decryptor.forgetKeys()
            linux_scrub_thread()
            #expect(try scanner.found() == [])
            withExtendedLifetime(decryptor) {}
        }
    }

    @Test("no secret of openssl's derivations and SHA-256 remains in memory")
    func noSecretOfDerivations() async {
        await #expect(processExitsWith: .success) {
            let scanner = try MemoryScanner()
            do {
                let passphrase = try SecretBytes.random(count: 32)
                let salt = [UInt8](repeating: 3, count: OpenSSLKeyDerivation.saltSize)
                let old = try OpenSSLKeyDerivation.bytesToKey(.md5)
                    .derive(passphrase: passphrase, salt: salt, keySize: 32)
                let new = try OpenSSLKeyDerivation.pbkdf2(.sha512, iterations: 100)
                    .derive(passphrase: passphrase, salt: salt, keySize: 32)
                let digest = try Sha256.digest(passphrase)
                let secrets = [passphrase, old.key, old.vector, new.key, new.vector, digest]
                for (number, secret) in secrets.enumerated() { scanner.add("\(number)", secret) }
                #expect(try scanner.found().count == secrets.count)
                for secret in secrets { withExtendedLifetime(secret) {} }
            }
            linux_scrub_thread()
            #expect(try scanner.found() == [])
        }
    }
}

/// Decrypts one block.
private func decrypt(_ decryptor: CbcDecryptor, _ key: CbcKey) throws {
    try withUnsafeTemporaryAllocation(byteCount: 32, alignment: 16) { bytes in
        bytes.initializeMemory(as: UInt8.self, repeating: 7)
        guard let base = bytes.baseAddress else { return }
        try decryptor.decrypt(
            UnsafeRawBufferPointer(start: base, count: 16), vector: base + 16, key: key,
            into: UnsafeMutableRawBufferPointer(start: base, count: 16))
    }
}
