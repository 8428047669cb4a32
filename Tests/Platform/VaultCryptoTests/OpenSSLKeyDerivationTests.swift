import TestSupport
import Testing

@testable import VaultCrypto

@Suite struct OpenSSLKeyDerivationTests {
    static let salt: [UInt8] = [1, 2, 3, 4, 5, 6, 7, 8]
    static let passphrase = "correct horse"

    private func derive(
        _ derivation: OpenSSLKeyDerivation, _ passphrase: String = passphrase, salt: [UInt8] = salt, keySize: Int = 32
    ) throws -> (key: [UInt8], vector: [UInt8]) {
        let made = try derivation.derive(
            passphrase: secret(Array(passphrase.utf8)), salt: salt, keySize: keySize)
        return (content(made.key), content(made.vector))
    }

    @Test(
        "PBKDF2, RFC 6070 (SHA-1) and RFC 7914 section 11 (SHA-256)",
        arguments: [
            (OpenSSLDigest.sha1, 1, "password", "salt", "0c60c80f961f0e71f3a9b524af6012062fe037a6"),
            (.sha1, 4096, "password", "salt", "4b007901b765489abead49d926f721d065a429c1"),
            (
                .sha256, 1, "passwd", "salt",
                """
                55ac046e56e3089fec1691c22544b605f94185216dde0465e68b9d57c20dacbc\
                49ca9cccf179b645991664b39d77ef31
                """
            ),
            (
                .sha256, 80000, "Password", "NaCl",
                """
                4ddcd8f60b98be21830cee5ef22701f9641a4418d04c0414aeff08876b34ab56\
                a1d425a1225833549adb841b51c9b317
                """
            ),
        ])
    func pbkdf2(digest: OpenSSLDigest, iterations: Int, passphrase: String, salt: String, expected: String) throws {
        let (key, vector) = try derive(
            .pbkdf2(digest, iterations: iterations), passphrase, salt: Array(salt.utf8))
        #expect(hex(key + vector).hasPrefix(expected))
    }

    @Test("EVP_BytesToKey with MD5, passphrase and salt as for `openssl enc -P` of 3.0")
    func bytesToKey() throws {
        let (key, vector) = try derive(.bytesToKey(.md5))
        #expect(hex(key) == "bcf8d941d9291141709c9d56360eb7148e3960ab3dc44d832c4028568545c91d")
        #expect(hex(vector) == "5a7a1d12207f801d2f6f4cf578e8708c")
    }

    /// Returns the output of `openssl enc -P` for these options.
    private func openssl(_ options: [String], keySize: Int, passphrase: String) throws -> [String] {
        let output = try Command(
            ["openssl", "enc", "-aes-\(keySize * 8)-cbc", "-S", hex(Self.salt), "-P", "-pass", "stdin"] + options,
            input: passphrase + "\n"
        ).run().succeeded().output
        return output.split(separator: "\n").filter { !$0.hasPrefix("salt") }
            .compactMap { $0.split(separator: "=").last?.lowercased() }
    }

    @Test("same keys as the openssl tool", arguments: OpenSSLDigest.allCases, [16, 24, 32])
    func tool(digest: OpenSSLDigest, keySize: Int) throws {
        let old = try derive(.bytesToKey(digest), keySize: keySize)
        #expect(
            try openssl(["-md", digest.rawValue], keySize: keySize, passphrase: Self.passphrase)
                == [hex(old.key), hex(old.vector)])
        let new = try derive(.pbkdf2(digest, iterations: 1234), keySize: keySize)
        let options = ["-md", digest.rawValue, "-pbkdf2", "-iter", "1234"]
        #expect(
            try openssl(options, keySize: keySize, passphrase: Self.passphrase) == [hex(new.key), hex(new.vector)])
    }

    @Test("an empty passphrase is valid")
    func emptyPassphrase() throws {
        let old = try derive(.bytesToKey(.sha256), "")
        #expect(try openssl([], keySize: 32, passphrase: "") == [hex(old.key), hex(old.vector)])
        let new = try derive(.pbkdf2(.sha256, iterations: 10000), "")
        #expect(try openssl(["-pbkdf2"], keySize: 32, passphrase: "") == [hex(new.key), hex(new.vector)])
    }

    @Test("impossible iterations, salt sizes and key sizes")
    func refused() throws {
        for count in [Int.min, -1, 0, 100_000_001, .max] {
            #expect(throws: CryptoError.invalidInput("\(count) iterations of PBKDF2")) {
                try derive(.pbkdf2(.sha256, iterations: count))
            }
        }
        for salt in [[UInt8](repeating: 1, count: 7), [UInt8](repeating: 1, count: 9)] {
            #expect(throws: CryptoError.invalidInput("a salt of \(salt.count) bytes for EVP_BytesToKey")) {
                try derive(.bytesToKey(.sha256), salt: salt)
            }
        }
        for keySize in [-1, 0, 8, 17, .max] {
            #expect(throws: CryptoError.invalidInput("an AES key of \(keySize) bytes")) {
                try derive(.bytesToKey(.sha256), keySize: keySize)
            }
        }
    }

    @Test("a forgotten passphrase is refused")
    func forgottenPassphraseIsRefused() throws {
        let passphrase = secret(0..<10)
        passphrase.forget()
        for derivation in [OpenSSLKeyDerivation.bytesToKey(.md5), .pbkdf2(.md5, iterations: 1)] {
            #expect(throws: CryptoError.keyForgotten) {
                try derivation.derive(passphrase: passphrase, salt: Self.salt, keySize: 16)
            }
        }
        #expect(throws: CryptoError.keyForgotten) { try Sha256.digest(passphrase) }
    }
}
